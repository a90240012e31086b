"""Softmax, cross entropies, bias and batch normalization, against TensorFlow's CPU."""

from __future__ import annotations

from functools import partial

import graphs
import numpy as np
import pytest
import tensorflow as tf
from support import WGPU, normal, on_both

FLOATS = ["float32", "float16", "bfloat16"]
LOOSE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 2e-5}


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype, rng):
    for shape in [(5,), (4, 10), (3, 4, 7), (2, 1000)]:
        x = normal(rng, dtype, *shape) * 3
        for op in [tf.nn.softmax, tf.nn.log_softmax]:
            on_both(op, x, rtol=LOOSE[dtype], atol=LOOSE[dtype])


def test_softmax_of_another_axis_and_its_gradient(rng):
    def gradient(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            loss = tf.reduce_sum(tf.square(tf.nn.softmax(t, axis=1)))
        return tape.gradient(loss, t)

    on_both(gradient, normal(rng, "float32", 3, 5, 4))


def dense(f, t):
    return tuple(tf.raw_ops.SoftmaxCrossEntropyWithLogits(features=f, labels=t))


def sparse(f, t):
    return tuple(tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=f, labels=t))


@pytest.mark.parametrize("dtype", FLOATS)
def test_cross_entropies(dtype, rng):
    logits = normal(rng, dtype, 6, 9)
    labels = np.abs(normal(rng, dtype, 6, 9))
    tolerance = {"rtol": 4 * LOOSE[dtype], "atol": 4 * LOOSE[dtype]}
    on_both(dense, logits, labels, **tolerance)
    on_both(dense, logits, labels[:1], **tolerance)
    for index in ["int32", "int64"]:
        classes = rng.integers(0, 9, 6).astype(index)
        on_both(sparse, logits, classes, **tolerance)


def type_of(node, attr):
    return tf.as_dtype(node.attr[attr].type).name


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("batch", [None, 6])
def test_cross_entropy_in_mixed_precision_is_one_node(dtype, batch, rng):
    """The loss is in float32, the logits and their gradient are not. The gradient has the bits of
    eager mode.
    """
    logits, classes = normal(rng, dtype, 6, 9), rng.integers(0, 9, 6)
    weights = np.abs(normal(rng, "float32", 6))

    def step(logits, classes, weights):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            wide = tf.cast(logits, "float32")
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(classes, wide)
            loss = tf.reduce_mean(loss * weights)
        return loss, tape.gradient(loss, logits)

    function = tf.function(
        step,
        input_signature=[
            tf.TensorSpec((batch, 9), dtype),
            tf.TensorSpec((batch,), "int64"),
            tf.TensorSpec((batch,), "float32"),
        ],
    )
    with tf.device(WGPU):
        arguments = [tf.constant(value) for value in (logits, classes, weights)]
        eager = step(*arguments)
        got, nodes = graphs.optimized(function, *arguments)
    found = graphs.ops(nodes)
    # In a batch of unknown size the scale has an unknown number of rows, so it stays apart.
    if batch or dtype != "float32":
        assert found["_WgpuFusedCrossEntropy"] == 1, found
        assert not found["SparseSoftmaxCrossEntropyWithLogits"], found
    casts = [
        n for n in nodes if n.op == "Cast" and dtype in (type_of(n, "SrcT"), type_of(n, "DstT"))
    ]
    assert dtype == "float32" or not casts, casts
    for one, other in zip(got, eager, strict=True):
        assert one.dtype == other.dtype
    np.testing.assert_allclose(got[0], eager[0], rtol=1e-6)
    np.testing.assert_array_equal(
        tf.cast(got[1], "float32").numpy(), tf.cast(eager[1], "float32").numpy()
    )


def test_cross_entropy_gradient(rng):
    def gradient(t, classes):
        with tf.GradientTape() as tape:
            tape.watch(t)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(classes, t))
        return loss, tape.gradient(loss, t)

    on_both(gradient, normal(rng, "float32", 32, 10), rng.integers(0, 10, 32))


def test_labels_out_of_range_give_nan():
    # As on TensorFlow's GPU devices; the CPU kernel raises.
    with tf.device(WGPU):
        loss, gradient = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=tf.ones([3, 4]), labels=tf.constant([1, 4, -1], tf.int64)
        )
    np.testing.assert_array_equal(np.isnan(loss.numpy()), [False, True, True])
    np.testing.assert_array_equal(np.isnan(gradient.numpy()).all(axis=1), [False, True, True])


def test_cross_entropy_errors():
    with tf.device(WGPU):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="logits and labels must be broadcastable"
        ):
            tf.raw_ops.SoftmaxCrossEntropyWithLogits(
                features=tf.ones([2, 3]), labels=tf.ones([2, 4])
            )
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="must have the same first dimension"
        ):
            tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
                features=tf.ones([2, 3]), labels=tf.constant([1], tf.int64)
            )


def bias_add(layout, x, b):
    return tf.raw_ops.BiasAdd(value=x, bias=b, data_format=layout)


def bias_gradient(layout, dy):
    return tf.raw_ops.BiasAddGrad(out_backprop=dy, data_format=layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_bias(layout, dtype, rng):
    # TensorFlow infers shapes of NCHW from 4 dimensions on.
    for shape in [(2, 3, 4, 3), (2, 3, 2, 3, 3)] + (
        [(4, 3), (2, 5, 3)] if layout == "NHWC" else []
    ):
        channels = shape[-1] if layout == "NHWC" else shape[1]
        x, b = normal(rng, dtype, *shape), normal(rng, dtype, channels)
        on_both(partial(bias_add, layout), x, b, rtol=LOOSE[dtype], atol=LOOSE[dtype])
        on_both(partial(bias_gradient, layout), x, rtol=4 * LOOSE[dtype], atol=10 * LOOSE[dtype])


def test_bias_errors():
    with (
        tf.device(WGPU),
        pytest.raises(tf.errors.InvalidArgumentError, match="Must provide as many biases"),
    ):
        tf.raw_ops.BiasAdd(value=tf.ones([2, 3]), bias=tf.ones([2]))


def forward(layout: str, is_training: bool, factor: float):
    def run(x, scale, offset, mean, variance):
        out = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=scale,
            offset=offset,
            mean=mean,
            variance=variance,
            data_format=layout,
            is_training=is_training,
            exponential_avg_factor=factor,
        )
        # In inference some of TensorFlow's CPU kernels leave the reserve spaces uninitialized.
        return tuple(out[:5] if is_training else out[:3])

    return run


def statistics(rng: np.random.Generator, channels: int) -> list[np.ndarray]:
    def vector() -> np.ndarray:
        return rng.normal(size=channels).astype("float32")

    return [vector(), vector(), vector(), np.abs(vector()) + 0.5]


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
def test_batch_norm(dtype, is_training, rng):
    for layout, shape in [("NHWC", (4, 5, 6, 3)), ("NDHWC", (2, 3, 4, 5, 3))]:
        x = normal(rng, dtype, *shape)
        for factor in [1.0, 0.3] if is_training else [1.0]:
            tolerance = {"float32": 5e-5, "float16": 1e-2, "bfloat16": 8e-2}[dtype]
            on_both(
                forward(layout, is_training, factor),
                x,
                *statistics(rng, 3),
                rtol=tolerance,
                atol=tolerance,
            )


@pytest.mark.parametrize("is_training", [True, False])
def test_batch_norm_channels_first_is_channels_last_transposed(is_training, rng):
    x, vectors = normal(rng, "float32", 3, 5, 4, 6), statistics(rng, 5)
    with tf.device("/device:CPU:0"):
        want = forward("NHWC", is_training, 1.0)(x.transpose(0, 2, 3, 1), *vectors)
    with tf.device(WGPU):
        got = forward("NCHW", is_training, 1.0)(tf.constant(x), *vectors)
    np.testing.assert_allclose(
        got[0].numpy(), want[0].numpy().transpose(0, 3, 1, 2), rtol=5e-5, atol=5e-5
    )
    for g, w in zip(got[1:], want[1:]):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize("is_training", [True, False])
def test_batch_norm_gradient(is_training, rng):
    def gradients(weights, x, scale, offset, mean, variance):
        with tf.GradientTape() as tape:
            tape.watch([x, scale, offset])
            y = tf.raw_ops.FusedBatchNormV3(
                x=x,
                scale=scale,
                offset=offset,
                mean=mean,
                variance=variance,
                is_training=is_training,
            )[0]
            loss = tf.reduce_sum(weights * tf.square(y))
        return tape.gradient(loss, [x, scale, offset])

    weights, x = normal(rng, "float32", 4, 5, 6, 3), normal(rng, "float32", 4, 5, 6, 3)
    on_both(gradients, weights, x, *statistics(rng, 3), rtol=1e-3, atol=1e-3)


def test_batch_norm_errors():
    x, ones = tf.ones([2, 3, 4, 5]), tf.ones([5])
    with (
        tf.device(WGPU),
        pytest.raises(tf.errors.InvalidArgumentError, match="scale must have the same number"),
    ):
        tf.raw_ops.FusedBatchNormV3(x=x, scale=tf.ones([4]), offset=ones, mean=ones, variance=ones)
