"""The fused elementwise op and the pass that emits it."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, run_on

OP = "_WgpuFusedElementwise"


def fused(
    inputs: dict[str, tuple[tf.DType, tf.TensorShape]],
    outputs: list[tf.DType],
    expression: str,
    constants=(),
):
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
        tf.import_graph_def(
            fused(inputs, [tf.float32] * 2, f"x: {types}; c: 0; return x0, x0"), name=""
        )
        outputs = graph.get_operation_by_name("fused").outputs
    assert [t.shape.as_list() if t.shape.rank is not None else None for t in outputs] == [want] * 2


def test_shapes_that_do_not_go_together_are_refused():
    inputs = {"a": (tf.float32, [2, 3]), "b": (tf.float32, [4])}
    with (
        tf.Graph().as_default(),
        pytest.raises(ValueError, match=rf"{OP}: Incompatible shapes: \[3\] vs\. \[4\]"),
    ):
        tf.import_graph_def(
            fused(inputs, [tf.float32], "x: float32, float32; c: 0; return x0"), name=""
        )


def call(graph, inputs: dict, n: int):
    """Runs the fused node of `graph` on the device."""

    @tf.function(
        input_signature=[tf.TensorSpec(None, t.dtype) for t in inputs.values()], autograph=False
    )
    def run(*tensors):
        names = {f"{name}:0": t for name, t in zip(inputs, tensors)}
        with tf.device(WGPU):
            return tf.import_graph_def(
                graph, input_map=names, return_elements=[f"fused:{i}" for i in range(n)]
            )

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
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"AddV2: Incompatible shapes: \[2\] vs\. \[3\].*fused into {OP}",
    ):
        call(graph, {"a": tf.zeros([2]), "b": tf.zeros([3])}, 1)


def run_fused(fn, *arrays, signature=None, most=None, rtol=None, atol=None):
    """Runs `fn` as a tf.function on the device and compares with the CPU and with the device's
    eager, unfused ops.

    There must be a fused node; `most` is the largest number of elementwise nodes, fused or not.
    """

    @tf.function(input_signature=signature, autograph=False)
    def function(*tensors):
        with tf.device(WGPU):
            return fn(*tensors)

    with tf.device(WGPU):
        tensors = [tf.constant(a) for a in arrays]
    result, nodes = graphs.optimized(function, *tensors)
    counts = graphs.ops(nodes)
    assert counts[OP] > 0, counts
    if most is not None:
        plain = {"Const", "_Arg", "_Retval", "_Send", "_Recv", "NoOp", "Identity"}
        assert sum(n for op, n in counts.items() if op not in plain) <= most, counts
    got = [t.numpy() for t in tf.nest.flatten(result)]
    for device in (CPU, WGPU):
        for g, w in zip(got, run_on(device, fn, *arrays), strict=True):
            assert_close(g, w, rtol, atol)
    return got, counts


def gradients(fn):
    """The gradient of the sum of `fn` by its first argument."""

    def grad(x, *rest):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x, *rest)
        return tape.gradient(y, x)

    return grad


ACTIVATIONS = {
    "gelu": tf.nn.gelu,
    "gelu approximate": lambda x: tf.nn.gelu(x, approximate=True),
    "silu": tf.nn.silu,
    "hard swish": lambda x: x * tf.nn.relu6(x + 3.0) / 6.0,
    "mish": lambda x: x * tf.tanh(tf.nn.softplus(x)),
    "celu": lambda x: tf.maximum(x, 0.0) + 0.5 * (tf.exp(tf.minimum(x, 0.0) / 0.5) - 1.0),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, rng):
    run_fused(ACTIVATIONS[name], rng.normal(size=(7, 33)).astype("float32"), most=1)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients(name, rng):
    x = rng.normal(size=(7, 33)).astype("float32")
    run_fused(gradients(ACTIVATIONS[name]), x, most=2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gelu approximate", "mish"])
def test_gradients_of_gradients(name, rng):
    x = rng.normal(size=(5, 9)).astype("float32")
    run_fused(gradients(gradients(ACTIVATIONS[name])), x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [[None, 33], [None, None], None])
def test_unknown_shapes(shape, rng):
    signature = [tf.TensorSpec(shape, tf.float32)]
    run_fused(tf.nn.gelu, rng.normal(size=(7, 33)).astype("float32"), signature=signature, most=1)


def test_biases_of_unknown_batches(rng):
    x, b = rng.normal(size=(7, 33)).astype("float32"), rng.normal(size=(33,)).astype("float32")
    signature = [tf.TensorSpec([None, 33], tf.float32), tf.TensorSpec([33], tf.float32)]
    run_fused(lambda x, b: tf.nn.relu(x + b) * 2.0 + 1.0, x, b, signature=signature, most=1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision(dtype, rng):
    x = rng.normal(size=(4, 31)).astype("float32")
    g = rng.normal(size=(31,)).astype("float32")

    def fn(x, g):
        low = tf.cast(x, dtype)
        high = tf.cast(low, "float32") * g + 1.0
        return tf.cast(tf.nn.sigmoid(high), dtype), high

    run_fused(fn, x, g, most=1)


def test_selections_and_comparisons(rng):
    x, y = rng.normal(size=(2, 6, 11)).astype("float32")

    def fn(x, y):
        mask = tf.logical_and(x > y, tf.not_equal(x, 0.0))
        return tf.where(mask, x * 2.0, y), mask, tf.where(mask, 0.0, x)

    run_fused(fn, x, y, most=1)


def test_integers_wrap(rng):
    x = rng.integers(-(2**62), 2**62, size=(41,))
    run_fused(lambda x: (x * 3 + x, tf.cast(x * x, "float32") > 0.5), x)


def test_special_values():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -1.0], "float32")

    def fn(x):
        return (
            tf.where(tf.math.is_nan(x), 0.0, tf.maximum(x, -2.0)),
            tf.math.is_inf(x * 10.0),
            tf.sqrt(tf.abs(x)) + x,
        )

    run_fused(fn, x)


def test_errors_name_op_and_shapes():
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)] * 2, autograph=False)
    def fn(x, y):
        with tf.device(WGPU):
            return tf.exp(x + y) * 2.0

    assert fn(tf.zeros([2]), tf.zeros([1])).shape == [2]
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"AddV2, Exp, Mul: Incompatible shapes: \[2\] vs\. \[3\].*fused into {OP}",
    ):
        fn(tf.zeros([2]), tf.zeros([3]))


def test_products_that_a_loop_repeats_are_in_front_of_it(rng):
    x, w, u = (rng.normal(0, 0.3, (8, 8)).astype("float32") for _ in range(3))

    def looped(x, w, u):
        return tf.while_loop(
            lambda i, _: i < 5, lambda i, h: (i + 1, tf.tanh(h @ w + x @ u)), [0, x]
        )[1]

    with tf.device(CPU):
        want = looped(*map(tf.constant, (x, w, u)))
    with tf.device(WGPU):
        got, nodes = graphs.optimized(tf.function(looped), *map(tf.constant, (x, w, u)))
    assert_close(got.numpy(), want.numpy(), 1e-4, 1e-5)
    products = [node.name for node in nodes if "MatMul" in node.op]
    assert [name.endswith("/in_front") for name in sorted(products)].count(True) == 1, products
    assert len(products) == 2, products


def test_a_residual_of_one_word_is_part_of_its_product(rng):
    import keras

    x = rng.normal(size=(1, 1, 16)).astype("float32")
    weights = rng.normal(size=(16, 16)).astype("float32")

    def make():
        layer = keras.layers.Dense(16, use_bias=False)
        layer.build((1, 1, 16))
        layer.kernel.assign(weights)
        return lambda x: keras.ops.add(x, layer(x))

    with tf.device(CPU):
        want = make()(tf.constant(x))
    with tf.device(WGPU):
        got, nodes = graphs.optimized(tf.function(make()), tf.constant(x))
    assert_close(got.numpy(), want.numpy(), 1e-5, 1e-5)
    found = graphs.ops(nodes)
    assert found["BiasAdd"] == found["AddV2"] == 0, found
    assert found["_WgpuFusedMatMul"] == 1, found
