"""Writes networks into a folder, for peers to run: `networks_export.py FOLDER small`.

Of each, `KEY.npz` with its weights (`w0`…), inputs (`x0`…) and TensorFlow's results on the CPU
(`y0`…), and `KEY.onnx`, as tf2onnx makes it of the same model; a GRU is written as ONNX's op. A
network that is there is kept. Answers each key with a line, as a peer does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The exported networks must consist of TensorFlow's own operations.
os.environ |= {"TF_WGPU_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}

from networks import FLOATS, Input, forward, inputs_of, network
from rows import tell

try:
    import keras
    import numpy as np
    import tensorflow as tf
    import tf2onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    tell(refused=f"{error}: python -m pip install --no-deps tf2onnx onnx, beside TensorFlow")
    raise SystemExit(0) from None

OPSET = 18


def value(source: Input, seed: int) -> np.ndarray:
    """Random numbers for an input."""
    numbers = np.random.default_rng(seed)
    if source.below == FLOATS:
        return numbers.standard_normal(source.shape, dtype="float32")
    return numbers.integers(source.below, size=source.shape, dtype="int32")


def spread(model: keras.Model) -> None:
    """Changes biases, scales and statistics from their initial values, so that a mistake with them
    shows.

    Variances stay positive.
    """
    numbers = np.random.default_rng(0)
    for variable in model.weights:
        if len(variable.shape) == 1 and variable.dtype == "float32":
            by = numbers.uniform(-0.1, 0.1, variable.shape)
            variable.assign(variable.numpy() + by.astype("float32"))


def complement(context: Any, node: Any, *_: Any) -> None:
    """`erfc`, which ONNX lacks and TensorFlow's GELU uses."""
    one = context.make_const(f"{node.name}_one", np.array(1, "float32")).output[0]
    below = context.make_node("Erf", node.input, name=f"{node.name}_erf").output[0]
    shape, dtype = context.get_shape(node.output[0]), context.get_dtype(node.output[0])
    name, outputs = node.name, node.output
    context.remove_node(name)
    context.make_node(
        "Sub", [one, below], name=name, outputs=outputs, shapes=[shape], dtypes=[dtype]
    )


def converted(function: Any, signature: list[tf.TensorSpec]) -> Any:
    """tf2onnx's translation of a function.

    It treats the constants that Keras makes outside of the function as inputs.
    """
    onnx, _ = tf2onnx.convert.from_function(
        function, signature, opset=OPSET, custom_op_handlers={"Erfc": (complement, [])}
    )
    captures = function.get_concrete_function().graph.captures
    values = {inner.name: outer for outer, inner in captures}
    for source in [source for source in onnx.graph.input if source.name in values]:
        onnx.graph.input.remove(source)
        value = numpy_helper.from_array(values[source.name].numpy(), source.name)
        onnx.graph.initializer.append(value)
    return onnx


def gru(model: keras.Model) -> Any:
    """The network of one GRU, which tf2onnx would translate to a loop around small operations."""
    kernel, recurrent, bias, weights, offset = model.get_weights()
    constants = {
        "w": kernel.T[None],
        "r": recurrent.T[None],
        "b": bias.reshape(1, -1),
        "axis": np.array([0]),
        "weights": weights,
        "offset": offset,
    }
    units = {"hidden_size": recurrent.shape[0], "linear_before_reset": 1}
    nodes = [
        helper.make_node("Transpose", ["x0"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["steps", "w", "r", "b"], ["", "last"], **units),
        helper.make_node("Squeeze", ["last", "axis"], ["h"]),
        helper.make_node("Gemm", ["h", "weights", "offset"], ["y0"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x0", model.inputs[0].shape), ("y0", model.outputs[0].shape))
    )
    held = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    opset = [helper.make_opsetid("", OPSET)]
    graph = helper.make_graph(nodes, "gru", [x], [y], held)
    return helper.make_model(graph, opset_imports=opset, ir_version=9)


@contextmanager
def without_functions() -> Iterator[None]:
    """Makes `tf.function` return the plain function meanwhile: Keras wraps grouped convolutions,
    for XLA.
    """
    original = tf.function
    tf.function = lambda function=None, **_: function or (lambda inner: inner)
    try:
        yield
    finally:
        tf.function = original


def export(folder: Path, key: str, small: bool) -> None:
    """Writes a network."""
    keras.utils.set_random_seed(0)
    made = network(key)
    model = made.make(made.sizes(small))
    spread(model)
    inputs = inputs_of(model)
    signature = [tf.TensorSpec(x.shape, x.dtype, f"x{i}") for i, x in enumerate(inputs)]
    function = tf.function(forward(model), input_signature=signature)
    values = [value(source, seed) for seed, source in enumerate(inputs)]
    with without_functions():
        results = [y.numpy() for y in function(*values)]
        onnx = gru(model) if key == "gru" else converted(function, signature)
    made_of = {node.op_type for node in onnx.graph.node if node.domain not in ("", "ai.onnx")}
    if made_of:
        raise ValueError(f"tf2onnx has no {', '.join(sorted(made_of))}")
    (folder / f"{key}.onnx.new").write_bytes(onnx.SerializeToString())
    (folder / f"{key}.onnx.new").rename(folder / f"{key}.onnx")
    arrays = {f"w{i}": w for i, w in enumerate(model.get_weights())}
    arrays |= {f"x{i}": x for i, x in enumerate(values)}
    arrays |= {f"y{i}": y for i, y in enumerate(results)}
    # This file is written last: if it exists, all files do.
    with (folder / f"{key}.npz.new").open("wb") as file:
        np.savez(file, **arrays)
    (folder / f"{key}.npz.new").rename(folder / f"{key}.npz")


def main() -> None:
    """Writes all networks."""
    folder, small = Path(sys.argv[1]), sys.argv[2] == "small"
    tell(about=f"Keras {keras.__version__}, tf2onnx {tf2onnx.__version__}")
    for line in sys.stdin:
        key = line.strip()
        try:
            if not (folder / f"{key}.npz").exists():
                export(folder, key, small)
            tell(row=key, seconds=0, cpu=0)
        except Exception as error:  # The others can still be compared.
            tell(row=key, error=f"{type(error).__name__}: {str(error)[:300]}")


main()
