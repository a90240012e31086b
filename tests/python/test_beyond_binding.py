"""Tensors that exceed one binding (128 MiB on lavapipe and by WebGPU's default) against
TensorFlow's CPU kernels.
"""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close


@pytest.fixture(autouse=True)
def _freed():
    yield
    gc.collect()


def compare(fn, *arrays, rtol=2e-5, atol=2e-4):
    """Runs `fn` eagerly on both devices."""
    results = []
    for device in (CPU, WGPU):
        with tf.device(device):
            results.append(
                [t.numpy() for t in tf.nest.flatten(fn(*[tf.constant(a) for a in arrays]))]
            )
    for got, want in zip(results[1], results[0]):
        assert_close(got, want, rtol, atol)


def values(*shape):
    """Cheap numbers without a short period, in [-1, 1)."""
    n = int(np.prod(shape))
    return ((np.arange(n, dtype=np.int64) * 7919 % 2003).astype("float32") / 1001.5 - 1).reshape(
        shape
    )


def test_products():
    tall, wide = values(40_000, 1000), values(1000, 8)
    compare(tf.matmul, tall, wide)
    compare(
        lambda a, b: tf.matmul(a, b, transpose_a=True),
        tall,
        values(40_000, 8),
        rtol=1e-4,
        atol=5e-3,
    )
    compare(lambda a, b: tf.matmul(a, b, transpose_b=True), values(8, 1000), tall)
    # A result of 160 MB, with an epilogue.
    dense = tf.function(lambda a, b, c: tf.nn.relu(tf.matmul(a, b) + c))
    compare(dense, values(40_000, 8), values(8, 1000), values(1000))


def test_convolution():
    def run(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.conv2d(x, w, 1, "SAME")
            loss = tf.reduce_sum(y * y) / tf.cast(tf.size(y), tf.float32)
        # The result has 201 MB.
        return [y[::3, ::29], *tape.gradient(loss, [x, w])]

    compare(run, values(8, 256, 256, 4), values(3, 3, 4, 96), rtol=1e-4, atol=1e-4)


def test_depthwise_convolution():
    def run(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            y = tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], "SAME")
            loss = tf.reduce_sum(y) / 1000.0
        return [y[:, ::29], *(g[::1] for g in tape.gradient(loss, [x, w]))]

    compare(run, values(9, 256, 256, 64), values(3, 3, 64, 1), rtol=1e-4, atol=1e-1)


def test_pooling():
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.max_pool2d(x, 2, 2, "VALID")
            loss = tf.reduce_sum(y * y)
        return [y, tape.gradient(loss, x)[:, ::13]]

    compare(run, values(16, 224, 224, 64))
    compare(lambda x: tf.nn.avg_pool2d(x, 3, 1, "SAME")[::2, ::7], values(16, 224, 224, 48))


def test_scans():
    x = values(40_000_000)
    with tf.device(WGPU):
        got = tf.cumsum(tf.constant(x)).numpy()
    want = np.cumsum(x, dtype="float64")
    assert np.max(np.abs(got - want)) <= 1e-6 * np.sum(np.abs(x), dtype="float64")
    compare(lambda x: tf.cumsum(x, axis=1, reverse=True)[:, ::101], values(40_000, 1000), atol=1e-3)


def test_one_hot():
    indices = (np.arange(75_000) * 7919 % 1003).astype("int32")
    compare(lambda i: tf.one_hot(i, 1000)[::17], indices)


def test_patches():
    def run(x):
        return tf.image.extract_patches(x, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "SAME")[
            ::3, ::11
        ]

    compare(run, values(8, 200, 200, 16))
