"""Matrix products, convolutions and pooling on WGPU against TensorFlow's CPU kernels, with
gradients.

In some cases the CPU has no channels-first and no grouped kernels: those are compared with
transposed or split references.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, normal, on_both, run_on

FLOATS = ["float32", "float16", "bfloat16"]
LOOSE = {"float16": 1e-2, "bfloat16": 8e-2, "float32": 2e-5}


def with_gradients(fn):
    """`fn` with the gradients of a weighted sum of its result."""

    def both(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = fn(*tensors)
            size = tf.cast(tf.size(y), tf.float32)
            weights = tf.cast(tf.reshape(tf.range(size) / size, tf.shape(y)), y.dtype)
            loss = tf.reduce_sum(y * weights)
        return [y, *tape.gradient(loss, tensors)]

    return both


def compare(fn, *arrays, dtype="float32"):
    on_both(fn, *arrays, rtol=LOOSE[dtype], atol=LOOSE[dtype] * 4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("transpose", [(False, False), (True, False), (False, True), (True, True)])
def test_matmul_and_its_gradient(dtype, transpose, rng):
    a = normal(rng, dtype, *((9, 7) if transpose[0] else (7, 9)))
    b = normal(rng, dtype, *((5, 9) if transpose[1] else (9, 5)))
    compare(with_gradients(lambda x, y: tf.matmul(x, y, *transpose)), a, b, dtype=dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_batches_broadcast(dtype, rng):
    a, b = normal(rng, dtype, 2, 1, 4, 6), normal(rng, dtype, 3, 6, 5)
    compare(lambda x, y: tf.linalg.matmul(x, y), a, b, dtype=dtype)
    # The CPU has few types of version 3.
    (want,) = run_on(CPU, tf.linalg.matmul, a, b)
    (got,) = run_on(WGPU, lambda x, y: tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=x.dtype), a, b)
    assert_close(got, want, rtol=LOOSE[dtype], atol=LOOSE[dtype] * 4)
    compare(lambda x: tf.raw_ops.BatchMatMul(x=x, y=x, adj_y=True), a, dtype=dtype)


def test_empty_and_large_products(rng):
    compare(tf.matmul, np.zeros((3, 0), "float32"), np.zeros((0, 4), "float32"))
    compare(tf.matmul, np.zeros((0, 3), "float32"), np.zeros((3, 4), "float32"))
    compare(tf.matmul, normal(rng, "float32", 200, 300) / 16, normal(rng, "float32", 300, 150))


def spread(w: tf.Tensor) -> tf.Tensor:
    """A filter with a zero between any two neighbours."""
    height, width, *channels = w.shape
    pairs = tf.pad(w[:, None, :, None], [[0, 0], [0, 1], [0, 0], [0, 1], [0, 0], [0, 0]])
    return tf.reshape(pairs, [2 * height, 2 * width, *channels])[:-1, :-1]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("padding", ["SAME", "VALID", [[0, 0], [2, 1], [0, 3], [0, 0]]])
@pytest.mark.parametrize(("strides", "dilations"), [(1, 1), (2, 1), ((3, 2), 1), (1, 2)])
def test_conv2d_and_its_gradients(dtype, padding, strides, dilations, rng):
    x, w = normal(rng, dtype, 2, 9, 8, 4), normal(rng, dtype, 3, 2, 4, 8) / 4

    # The CPU has no gradients with dilations for all types, and none with explicit padding: padding
    # with zeros gives the same.
    def reference(x, w):
        if isinstance(padding, list):
            x = tf.pad(x, padding)
        same = "VALID" if isinstance(padding, list) else padding
        return tf.nn.conv2d(x, spread(w) if dilations == 2 else w, strides, same)

    want = run_on(CPU, with_gradients(reference), x, w)
    fn = with_gradients(lambda x, w: tf.nn.conv2d(x, w, strides, padding, dilations=dilations))
    for graph in (False, True):
        for got, expected in zip(run_on(WGPU, fn, x, w, graph=graph), want):
            assert_close(got, expected, rtol=LOOSE[dtype], atol=LOOSE[dtype] * 8)


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_grouped_convolutions(groups, data_format, rng):
    x, w = normal(rng, "float32", 2, 7, 6, 4 * groups), normal(rng, "float32", 3, 3, 4, 5 * groups)

    def split(x, w):
        pairs = zip(tf.split(x, groups, 3), tf.split(w, groups, 3))
        return tf.concat([tf.nn.conv2d(a, b, 2, "SAME") for a, b in pairs], 3)

    def grouped(x, w):
        if data_format == "NHWC":
            return tf.nn.conv2d(x, w, 2, "SAME")
        y = tf.nn.conv2d(tf.transpose(x, [0, 3, 1, 2]), w, 2, "SAME", data_format="NCHW")
        return tf.transpose(y, [0, 2, 3, 1])

    want = run_on(CPU, with_gradients(split), x, w)
    for got, expected in zip(run_on(WGPU, with_gradients(grouped), x, w), want):
        assert_close(got, expected, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolution_and_its_gradients(dtype, padding, stride, rng):
    x, w = normal(rng, dtype, 2, 8, 7, 3), normal(rng, dtype, 3, 3, 3, 2)
    strides = [1, stride, stride, 1]
    compare(
        with_gradients(lambda x, w: tf.nn.depthwise_conv2d(x, w, strides, padding)),
        x,
        w,
        dtype=dtype,
    )


def test_channels_first_depthwise_convolution(rng):
    x, w = normal(rng, "float32", 2, 8, 7, 3), normal(rng, "float32", 3, 3, 3, 2)

    def first(x, w):
        y = tf.nn.depthwise_conv2d(
            tf.transpose(x, [0, 3, 1, 2]), w, [1, 1, 1, 1], "SAME", data_format="NCHW"
        )
        return tf.transpose(y, [0, 2, 3, 1])

    want = run_on(
        CPU, with_gradients(lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME")), x, w
    )
    for got, expected in zip(run_on(WGPU, with_gradients(first), x, w), want):
        assert_close(got, expected, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_conv3d_and_its_gradients(padding, rng):
    x, w = normal(rng, "float32", 2, 5, 6, 4, 3), normal(rng, "float32", 2, 3, 2, 3, 4)
    compare(with_gradients(lambda x, w: tf.nn.conv3d(x, w, [1, 1, 2, 1, 1], padding)), x, w)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("pool", [tf.nn.max_pool2d, tf.nn.avg_pool2d])
def test_pooling_and_its_gradient(dtype, padding, pool, rng):
    # Small integers: ties are common.
    x = rng.integers(-3, 3, (2, 9, 8, 5)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    compare(with_gradients(lambda x: pool(x, 3, 2, padding)), x, dtype=dtype)


def test_pooling_in_three_dimensions(rng):
    x = normal(rng, "float32", 2, 5, 6, 7, 3)
    compare(with_gradients(lambda x: tf.nn.max_pool3d(x, 2, 2, "SAME")), x)
    compare(with_gradients(lambda x: tf.nn.avg_pool3d(x, 3, 1, "VALID")), x)


@pytest.mark.parametrize("include_batch", [False, True])
def test_argmax(include_batch, rng):
    x = normal(rng, "float32", 2, 6, 7, 3)
    fn = tf.nn.max_pool_with_argmax
    compare(lambda x: fn(x, 2, 2, "SAME", include_batch_in_index=include_batch), x)
    compare(
        with_gradients(lambda x: fn(x, 2, 2, "SAME", include_batch_in_index=include_batch)[0]), x
    )


def test_channels_first_pooling(rng):
    x = normal(rng, "float32", 2, 6, 7, 3)

    def first(pool):
        def fn(x):
            y = pool(tf.transpose(x, [0, 3, 1, 2]), 2, 2, "SAME", data_format="NCHW")
            return tf.transpose(y, [0, 2, 3, 1])

        return fn

    for pool in (tf.nn.max_pool2d, tf.nn.avg_pool2d):
        want = run_on(CPU, with_gradients(lambda x, pool=pool: pool(x, 2, 2, "SAME")), x)
        for got, expected in zip(run_on(WGPU, with_gradients(first(pool)), x), want):
            assert_close(got, expected)


def test_the_second_gradient_of_a_maximum(rng):
    def second(x):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.nn.max_pool2d(x, 2, 2, "SAME") ** 3)
            first = inner.gradient(y, x)
        return outer.gradient(first, x)

    compare(second, normal(rng, "float32", 2, 6, 6, 3))


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (
            lambda z: tf.raw_ops.MatMul(a=z(2, 3), b=z(4, 5)),
            tf.errors.InvalidArgumentError,
            "Matrix size-incompatible",
        ),
        (
            lambda z: tf.raw_ops.BatchMatMulV2(x=z(2, 3, 3), y=z(3, 3, 3)),
            tf.errors.InvalidArgumentError,
            "must have compatible batch dimensions",
        ),
        (
            lambda z: tf.raw_ops.Conv2D(
                input=z(1, 2, 2, 3), filter=z(4, 4, 3, 1), strides=[1] * 4, padding="VALID"
            ),
            tf.errors.InvalidArgumentError,
            "Computed output size would be negative",
        ),
        (
            lambda z: tf.raw_ops.Conv2D(
                input=z(1, 4, 4, 3), filter=z(3, 3, 2, 1), strides=[1] * 4, padding="SAME"
            ),
            tf.errors.InvalidArgumentError,
            "input depth must be evenly divisible by filter depth: 3 vs 2",
        ),
        (
            lambda z: tf.raw_ops.Conv2D(
                input=z(1, 4, 4, 3), filter=z(3, 3, 3, 1), strides=[1, 1, 1, 2], padding="SAME"
            ),
            tf.errors.UnimplementedError,
            "strides in the batch and depth dimensions",
        ),
        (
            lambda z: tf.raw_ops.MaxPool(
                input=z(1, 2, 2, 3), ksize=[2, 1, 1, 1], strides=[1] * 4, padding="SAME"
            ),
            tf.errors.UnimplementedError,
            "Pooling is not yet supported on the batch dimension",
        ),
    ],
)
def test_errors(fn, error, message):
    with tf.device(WGPU), pytest.raises(error, match=message):
        fn(lambda *dims: tf.zeros(dims))
