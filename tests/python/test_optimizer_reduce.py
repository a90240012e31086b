"""Reductions fused with the nodes in front of them: through Keras and tf.nn, compared with the CPU
and with the original graph.
"""

from __future__ import annotations

import contextlib
import functools

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close

OP = "_WgpuFusedReduce"


@contextlib.contextmanager
def unoptimized():
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False, **before})


def reductions(nodes):
    """The reductions of the fused nodes, one entry for each node."""
    return sorted(node.attr["reductions"].s.decode() for node in nodes if node.op == OP)


def epilogues(nodes):
    """The epilogues of the fused reductions, one text for each node that has one."""
    return [text for node in nodes if node.op == OP and (text := node.attr["epilogue"].s.decode())]


def compare(make, *arrays, rtol=None, atol=None):
    """Calls the tf.function that `make` returns: on WGPU with and without the optimizer, and on the
    CPU.

    Returns the nodes of the first.
    """
    results = []
    for device, context in (
        (WGPU, contextlib.nullcontext()),
        (WGPU, unoptimized()),
        (CPU, unoptimized()),
    ):
        with context, tf.device(device):
            result, nodes = graphs.optimized(tf.function(make()), *[tf.constant(a) for a in arrays])
        results.append(([np.asarray(t.numpy()) for t in tf.nest.flatten(result)], nodes))
    (got, nodes), (plain, plain_nodes), (want, _) = results
    assert OP not in graphs.ops(plain_nodes)
    for g, p, w in zip(got, plain, want, strict=True):
        assert_close(g, w, rtol, atol)
        assert_close(g, p, rtol, atol)
    return nodes


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(8, 5, 6, 3), (16, 7)])
def test_batch_normalization_trains(rng, shape, policy):
    x, w = (rng.normal(size=shape).astype("float32") for _ in range(2))
    scale, offset = (rng.normal(size=shape[-1:]).astype("float32") for _ in range(2))

    def make():
        layer = keras.layers.BatchNormalization(dtype=policy)
        layer.build(shape)
        layer.gamma.assign(scale)
        layer.beta.assign(offset)

        def steps(x, w):
            results = []
            for step in range(3):
                x = x * (step + 1.0) + 1.0
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = layer(x, training=True)
                    loss = tf.reduce_sum(tf.cast(y, tf.float32) * w)
                gradients = tape.gradient(loss, [x, layer.gamma.value, layer.beta.value])
                for variable, gradient in zip((layer.gamma, layer.beta), gradients[1:]):
                    variable.assign_sub(0.1 * gradient)
                results += [loss, y, *gradients]
            return [tf.cast(r, tf.float32) for r in results], [v.value for v in layer.variables]

        return steps

    # 16-bit results may differ by one rounding of a value of about 8.
    tolerance = {"float32": 2e-4, "mixed_float16": 2e-2, "mixed_bfloat16": 2e-1}[policy]
    nodes = compare(make, x, w, rtol=tolerance, atol=tolerance)
    found = reductions(nodes)
    assert ",".join(found).split(",").count("Moments") == 3, found
    # The gradients of scale and offset share a pass, and the loss is summed together with the nodes
    # in front of it.
    count = graphs.ops(nodes)
    assert count["Mean"] == count["SquaredDifference"] == count["Sum"] == 0, count
    assert any("Sum,Sum" in names for names in found), found
    # Nodes that follow moments and sums are computed with them.
    assert count["Rsqrt"] == 0, count
    assert sum("Rsqrt<" in text for text in epilogues(nodes)) == 3, epilogues(nodes)
    # One node of the three steps would have more outputs than allowed.
    assert sum("RsqrtGrad<" in text for text in epilogues(nodes)) >= 2, epilogues(nodes)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("groups", [1, 3, -1])
def test_group_normalization_trains(rng, groups, policy):
    shape = (4, 5, 6, 9)
    x, w = (rng.normal(size=shape).astype("float32") for _ in range(2))
    scale, offset = (rng.normal(size=shape[-1:]).astype("float32") for _ in range(2))

    def make():
        layer = keras.layers.GroupNormalization(groups, dtype=policy)
        layer.build(shape)
        layer.gamma.assign(scale)
        layer.beta.assign(offset)

        def step(x, w):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.cast(layer(x), tf.float32)
                loss = tf.reduce_mean(tf.square(y - w))
            return loss, y, *tape.gradient(loss, [x, layer.gamma.value, layer.beta.value])

        return step

    tolerance = {"float32": 1e-4, "mixed_bfloat16": 1e-1}[policy]
    compare(make, x, w, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", ["silu", "relu", "gelu"])
@pytest.mark.parametrize("shape", [(2, 6, 5, 8), (2, 7, 8)])
def test_a_group_normalization_and_its_activation_are_two_nodes(rng, shape, activation):
    x = rng.normal(size=shape).astype("float32")
    scale, offset = (rng.normal(size=shape[-1:]).astype("float32") for _ in range(2))

    def make():
        layer = keras.layers.GroupNormalization(4)
        layer.build(shape)
        layer.gamma.assign(scale)
        layer.beta.assign(offset)
        function = keras.activations.get(activation)

        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(layer(x))
            return y, *tape.gradient(y, [x, layer.gamma.value, layer.beta.value])

        return lambda x: function(layer(x)), step

    free = {"Const", "Identity", "NoOp", "ReadVariableOp", "Reshape", "_Arg", "_Retval"}
    nodes = compare(lambda: make()[0], x, rtol=1e-4, atol=1e-4)
    ran = {op: count for op, count in graphs.ops(nodes).items() if op not in free}
    # Statistics, and their use with the activation.
    assert set(ran) <= {"_WgpuFusedReduce", "_WgpuFusedRowwise", "_WgpuFusedElementwise"}, ran
    assert sum(ran.values()) == 2, ran
    compare(lambda: make()[1], x, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("axes", [[0], [1, 2], [0, 1, 2], [-1, 0]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_moments(rng, axes, keepdims):
    x = rng.normal(loc=50.0, size=(6, 5, 4, 3)).astype("float32")
    for function in (tf.nn.moments, tf.math.reduce_std):
        nodes = compare(lambda function=function: lambda x: function(x, axes, keepdims=keepdims), x)
        # Functions of rows belong to another op.
        assert reductions(nodes) == ([] if -1 in axes else ["Moments"])
        count = graphs.ops(nodes)
        assert count["Mean"] == count["SquaredDifference"] == count["Square"] == 0, count


def test_an_unknown_batch():
    @tf.function(input_signature=[tf.TensorSpec([None, 3])] * 2)
    def function(x, y):
        return (
            *tf.nn.moments(x, [0]),
            tf.reduce_sum(tf.square(x - y), axis=[0]),
            tf.reduce_sum(x, axis=[0]),
        )

    for rows in (1, 7):
        x = np.arange(rows * 3, dtype="float32").reshape(rows, 3)
        with tf.device(WGPU):
            result, nodes = graphs.optimized(function, tf.constant(x), tf.constant(x * x))
        for got, want in zip(
            result, (x.mean(0), x.var(0), ((x - x * x) ** 2).sum(0), x.sum(0)), strict=True
        ):
            assert_close(got.numpy(), want, 1e-5, 1e-5)
        if rows == 1:
            assert any("Moments" in each for each in reductions(nodes))


@pytest.mark.parametrize(
    "loss",
    [
        "MeanSquaredError",
        "MeanAbsoluteError",
        "Huber",
        "LogCosh",
        "MeanSquaredLogarithmicError",
        "Poisson",
    ],
)
def test_losses(rng, loss):
    x, y = (rng.uniform(0.1, 2.0, size=(9, 5)).astype("float32") for _ in range(2))

    def make():
        function = getattr(keras.losses, loss)()

        def both(x, y):
            with tf.GradientTape() as tape:
                tape.watch(x)
                value = function(y, x)
            return value, tape.gradient(value, x)

        return both

    compare(make, x, y, rtol=2e-5, atol=2e-5)


def test_a_squared_error_is_one_node(rng):
    x, y = (rng.normal(size=(9, 5)).astype("float32") for _ in range(2))
    nodes = compare(lambda: lambda x, y: tf.reduce_mean(tf.square(x - y)), x, y)
    assert reductions(nodes) == ["Mean"]
    count = graphs.ops(nodes)
    assert count["Sub"] == count["Square"] == count["SquaredDifference"] == count["Mean"] == 0


def test_a_loss_of_rows_is_one_node(rng):
    # The mean of each row, their sum, and the division by their number.
    x, y = (rng.normal(size=(9, 5)).astype("float32") for _ in range(2))
    nodes = compare(lambda: lambda x, y: keras.losses.MeanSquaredError()(y, x), x, y)
    assert reductions(nodes) == ["Sum"]
    assert "DivNoNan<" in epilogues(nodes)[0]
    assert sum(n for op, n in graphs.ops(nodes).items() if op.startswith("_Wgpu")) == 1, graphs.ops(
        nodes
    )


def test_gradients_of_biases(rng):
    x, g = (
        rng.normal(size=(4, 5, 6, 3)).astype("float32"),
        rng.normal(size=(4, 5, 6, 3)).astype("float32"),
    )

    def make():
        def sums(x, g):
            by_bias = tf.raw_ops.BiasAddGrad(out_backprop=tf.square(x) * g, data_format="NHWC")
            planes = tf.raw_ops.BiasAddGrad(out_backprop=tf.exp(x), data_format="NCHW")
            return by_bias, planes, tf.reduce_sum(g, [0, 1, 2])

        return sums

    nodes = compare(make, x, g, rtol=1e-4, atol=1e-4)
    assert reductions(nodes) == ["Sum", "Sum,Sum"], reductions(nodes)
    assert graphs.ops(nodes)["BiasAddGrad"] == 0


def test_results_in_other_shapes(rng):
    # Squeezed results, operands of another rank, a result that is needed itself, conversions.
    x, v = (
        rng.normal(size=(6, 4, 3)).astype("float32"),
        rng.uniform(0.5, 2.0, size=(3,)).astype("float32"),
    )

    def function(x, v):
        kept = tf.reduce_sum(tf.square(x), [0, 1], keepdims=True)
        norm = tf.sqrt(tf.squeeze(kept, [0, 1]) + 0.5)
        return kept, norm, norm * v, tf.cast(tf.reshape(norm, [1, 3]) / v, tf.float16)

    nodes = compare(lambda: function, x, v, rtol=1e-3, atol=1e-4)
    assert len(epilogues(nodes)) == 1
    assert sum(n for op, n in graphs.ops(nodes).items() if op.startswith("_Wgpu")) == 1, graphs.ops(
        nodes
    )


def test_penalties_norms_and_clipping(rng):
    x, y = (rng.normal(size=(9, 5)).astype("float32") for _ in range(2))

    def make():
        return lambda x, y: (
            keras.regularizers.L2(0.1)(x),
            keras.regularizers.L1(0.1)(x * y),
            tf.nn.l2_loss(x - y),
            tf.norm(x * 2.0, axis=0),
            tf.clip_by_global_norm([x, y], 1.0)[0],
        )

    nodes = compare(make, x, y)
    assert "L2Loss" in ",".join(reductions(nodes))


@pytest.mark.parametrize("value", [1.0, np.inf, np.nan])
def test_finiteness_is_that_of_the_rounded_value(value):
    # The product overflows in float16: the test must see the same value as a reader of the product.
    x = np.array([[1.0, 300.0], [2.0, value]], "float16")
    nodes = compare(
        lambda: (
            lambda x: (tf.reduce_all(tf.math.is_finite(x)), tf.reduce_all(tf.math.is_finite(x * x)))
        ),
        x,
    )
    assert set(",".join(reductions(nodes)).split(",")) == {"All"}


def test_errors_are_the_same():
    @tf.function(input_signature=[tf.TensorSpec([None, None]), tf.TensorSpec([None, None])])
    def function(x, y):
        return tf.reduce_sum(tf.square(x - y), axis=[0])

    with (
        tf.device(WGPU),
        pytest.raises(
            tf.errors.InvalidArgumentError, match=r"Incompatible shapes: \[2,3\] vs\. \[2,4\]"
        ),
    ):
        function(tf.ones([2, 3]), tf.ones([2, 4]))


def test_a_model_of_unknown_batch_fits(rng):
    # 3 batches, the last of which is shorter.
    x, y = (
        rng.normal(size=(20, 6, 6, 3)).astype("float32"),
        rng.normal(size=(20, 2)).astype("float32"),
    )
    results = []
    for device, context in (
        (WGPU, contextlib.nullcontext()),
        (WGPU, unoptimized()),
        (CPU, unoptimized()),
    ):
        keras.utils.set_random_seed(3)
        with context, tf.device(device):
            layers = keras.layers
            model = keras.Sequential(
                [
                    layers.Input((6, 6, 3)),
                    layers.Conv2D(4, 3),
                    layers.BatchNormalization(),
                    layers.ReLU(),
                    layers.Flatten(),
                    layers.Dense(2),
                ]
            )
            model.compile(keras.optimizers.SGD(0.05), "mse")
            fit = functools.partial(
                model.fit, x, y, batch_size=8, epochs=2, shuffle=False, verbose=0
            )
            tf.config.set_soft_device_placement(True)  # the data set's ops
            try:
                _, nodes = graphs.optimized(fit)
            finally:
                tf.config.set_soft_device_placement(False)
        results.append(([w.numpy() for w in model.weights], reductions(nodes)))
    (got, found), (plain, _), (want, _) = results
    assert "Moments" in found, found
    assert "Sum,Sum" in found, found
    for g, p, w in zip(got, plain, want, strict=True):
        assert_close(g, w, 1e-4, 1e-5)
        assert_close(g, p, 1e-4, 1e-5)
