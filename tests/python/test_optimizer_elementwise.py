"""The fused elementwise op and the pass that emits it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support import WGPU

OP = "_WgpuFusedElementwise"


def fused(inputs: dict[str, tuple[tf.DType, tf.TensorShape]], outputs: list[tf.DType], expression: str, constants=()):
    """A GraphDef with one fused node over placeholders."""
    graph = tf.compat.v1.GraphDef()
    graph.versions.producer = tf.version.GRAPH_DEF_VERSION
    for name, (dtype, shape) in inputs.items():
        node = graph.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    node = graph.node.add(name="fused", op=OP, input=list(inputs))
    node.attr["T_in"].list.type.extend(dtype.as_datatype_enum for dtype, _ in inputs.values())
    node.attr["T_out"].list.type.extend(dtype.as_datatype_enum for dtype in outputs)
    node.attr["expression"].s = expression.encode()
    node.attr["constants"].list.f.extend(constants)
    node.attr["constants"].list.SetInParent()
    return graph


@pytest.mark.parametrize(
    ("shapes", "want"),
    [
        ([[2, 3]], [2, 3]),
        ([[]], []),
        ([None], None),
        ([[None, 3]], [None, 3]),
        ([[2, 1], [1, 4]], [2, 4]),
        ([[None, 1], [5]], [None, 5]),
        ([[2, 3], None], None),
    ],
)
def test_shapes_are_inferred(shapes, want):
    inputs = {f"x{i}": (tf.float32, shape) for i, shape in enumerate(shapes)}
    types = ", ".join("float32" for _ in shapes)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(fused(inputs, [tf.float32] * 2, f"x: {types}; c: 0; return x0, x0"), name="")
        outputs = graph.get_operation_by_name("fused").outputs
    assert [t.shape.as_list() if t.shape.rank is not None else None for t in outputs] == [want] * 2


def test_shapes_that_do_not_go_together_are_refused():
    inputs = {"a": (tf.float32, [2, 3]), "b": (tf.float32, [4])}
    with tf.Graph().as_default(), pytest.raises(ValueError, match=rf"{OP}: Incompatible shapes: \[3\] vs\. \[4\]"):
        tf.import_graph_def(fused(inputs, [tf.float32], "x: float32, float32; c: 0; return x0"), name="")


def call(graph, inputs: dict, n: int):
    """Runs the fused node of `graph` on the device."""

    @tf.function(input_signature=[tf.TensorSpec(None, t.dtype) for t in inputs.values()], autograph=False)
    def run(*tensors):
        names = {f"{name}:0": t for name, t in zip(inputs, tensors)}
        with tf.device(WGPU):
            return tf.import_graph_def(graph, input_map=names, return_elements=[f"fused:{i}" for i in range(n)])

    return [t.numpy() for t in run(*inputs.values())]


def test_a_node_runs(rng):
    x = rng.normal(size=(4, 5)).astype("float32")
    y = rng.normal(size=(5,)).astype("float16")
    text = (
        "x: float32, float16; c: 1; s0 = Cast<float16, float32>(x1); s1 = AddV2<float32>(x0, s0); "
        "s2 = Greater<float32>(s1, c0); return s1, s2"
    )
    inputs = {"a": (tf.float32, [None, 5]), "b": (tf.float16, [5])}
    graph = fused(inputs, [tf.float32, tf.bool], text, [0.5])
    total, greater = call(graph, {"a": tf.constant(x), "b": tf.constant(y)}, 2)
    want = x + y.astype("float32")
    np.testing.assert_allclose(total, want, rtol=1e-6)
    np.testing.assert_array_equal(greater, total > 0.5)


def test_shapes_known_only_when_it_runs_are_checked():
    text = "x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); return s0"
    graph = fused({"a": (tf.float32, None), "b": (tf.float32, None)}, [tf.float32], text)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{OP}.*Incompatible shapes: \[2\] vs\. \[3\]"):
        call(graph, {"a": tf.zeros([2]), "b": tf.zeros([3])}, 1)
