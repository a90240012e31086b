"""Indices of int32 that a function computes between two ops of the device."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu


def downloads(function, *inputs):
    """The downloads of one call, after two that warm up, and the call's result."""
    function(*inputs)
    function(*inputs)
    before = tensorflow_wgpu.statistics()["WGPU:0"]["downloads"]
    result = function(*inputs)
    count = tensorflow_wgpu.statistics()["WGPU:0"]["downloads"] - before
    return count, np.asarray(result)


@pytest.fixture
def device():
    """Places all work of a test on the device."""
    with tf.device("WGPU:0"):
        yield


@pytest.mark.usefixtures("device")
def test_an_embedding_of_floats_waits_for_nothing():
    import keras

    table = keras.layers.Embedding(50, 6)
    table.build()
    ids = tf.identity(tf.constant([[0.0, 3.7, 49.0], [-1.0, -50.0, 12.2]]))
    count, result = downloads(tf.function(lambda x: table(x)), ids)
    assert count == 0
    wanted = np.asarray(table.embeddings)[np.array([[0, 3, 49], [49, 0, 12]])]
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.usefixtures("device")
def test_integers_keep_their_bits():
    """Sums wrap, and casts of large floats are those of the separate op."""
    x = tf.identity(tf.constant([2147483520.0, -2147483648.0, 1e12, -1e12, 16777217.0, -0.9]))

    def compute(x):
        i = tf.cast(x, tf.int32)
        return tf.cast(tf.where(i < 7, i - 200, i + 200), tf.float32)

    count, result = downloads(tf.function(compute), x)
    assert count == 0
    np.testing.assert_array_equal(result, compute(x))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("limit", [5, 16777217, 2147483647])
def test_constants_are_exact(limit):
    x = tf.identity(tf.constant([0, 4, 5, 6, 16777216, 16777217, 2147483647], tf.int64))

    def compute(x):
        i = tf.maximum(tf.cast(x, tf.int32) - 1, 0)
        return tf.one_hot(tf.where(i >= limit - 1, 1, 0), 2), tf.cast(i, tf.int64)

    function = tf.function(compute)
    for got, wanted in zip(function(x), compute(x), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.usefixtures("device")
def test_a_quantized_layer_keeps_its_groups_on_the_device():
    keras = pytest.importorskip("keras", minversion="3.15")

    layer = keras.layers.Dense(24)
    layer.build((None, 256))
    layer.quantize("int4")
    x = tf.identity(tf.constant(np.random.default_rng(3).normal(size=(4, 256)), tf.float32))
    count, result = downloads(tf.function(lambda x: layer(x)), x)
    assert count == 0
    with tf.device("CPU:0"):
        wanted = layer(x)
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def integers(a, b):
    """The functions of int32 that a fused op computes, beside comparisons and sums."""
    a, b = tf.cast(a, tf.int32), tf.cast(b, tf.int32)
    bits = tf.bitwise
    binary = [
        bits.bitwise_and,
        bits.bitwise_or,
        bits.bitwise_xor,
        bits.left_shift,
        bits.right_shift,
        tf.math.squared_difference,
    ]
    unary = [tf.abs, tf.square, tf.sign, bits.invert]
    return [tf.cast(f(a, b), tf.int64) for f in binary] + [tf.cast(f(a), tf.int64) for f in unary]


def test_functions_of_integers_at_their_edges():
    a = [0.0, 1.0, -1.0, 5.0, -7.0, 2147483520.0, -2147483648.0, 123456.0, 33.0]
    b = [0.0, 1.0, 31.0, 32.0, 40.0, 63.0, 64.0, -1.0, -33.0, 2147483520.0]
    values = [tf.constant(v.ravel(), tf.float32) for v in np.meshgrid(a, b)]
    with tf.device("CPU:0"):
        wanted = integers(*values)
    with tf.device("WGPU:0"):
        own = [tf.identity(v) for v in values]
        function = tf.function(integers)
        count, _ = downloads(lambda *own: function(*own)[0], *own)
        results = function(*own)
    assert count == 0
    for got, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
