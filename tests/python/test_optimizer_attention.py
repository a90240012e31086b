"""The fused attention op and the pass that emits it: Keras layers and attention by hand."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized

OP = "_WgpuFusedAttention"
RANDOM = np.random.default_rng(0)


def values(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def compare(fn, arrays, signature=None, fused=1, tolerance=1e-5):
    """Runs `fn` as one graph on WGPU, checks that the op is there, and compares with eager WGPU
    (unoptimized) and the CPU.
    """
    with tf.device("CPU:0"):
        want = fn(*[tf.constant(a) for a in arrays])
    with tf.device("WGPU:0"):
        given = [tf.constant(a) for a in arrays]
        eager = fn(*given)
        got, nodes = optimized(tf.function(fn, input_signature=signature), *given)
    assert ops(nodes)[OP] == fused, ops(nodes)
    for a, b, c in zip(
        tf.nest.flatten(got), tf.nest.flatten(eager), tf.nest.flatten(want), strict=True
    ):
        assert a.dtype == c.dtype
        assert a.shape == c.shape
        np.testing.assert_allclose(
            tf.cast(a, tf.float32), tf.cast(c, tf.float32), rtol=tolerance, atol=tolerance
        )
        np.testing.assert_allclose(
            tf.cast(a, tf.float32), tf.cast(b, tf.float32), rtol=tolerance, atol=tolerance
        )


def layer(dropout=0.0, dtype="float32", **options):
    with tf.device("WGPU:0"):
        built = keras.layers.MultiHeadAttention(4, 8, dropout=dropout, dtype=dtype, **options)
        built.build([None, None, 32], [None, None, 32])
    return built


# With dropout, Keras writes attention as matrix products and transposes, without dropout as two
# einsums.
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
def test_multi_head_attention(dropout, dtype, mask):
    attention = layer(dropout, dtype)
    padding = np.arange(11)[None, None, :] < np.array([4, 11])[:, None, None]

    def fn(x):
        if mask == "padding":
            return attention(x, x, attention_mask=tf.constant(padding))
        return attention(x, x, use_causal_mask=mask == "causal")

    compare(fn, [values(2, 11, 32)], tolerance=1e-5 if dtype == "float32" else 4e-3)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_cross_attention_of_unknown_sizes(dropout):
    attention = layer(dropout, value_dim=6)
    spec = tf.TensorSpec([None, None, 32])
    compare(lambda x, y: attention(x, y), [values(2, 5, 32), values(2, 9, 32)], [spec, spec])


@pytest.mark.parametrize("length", [11, None])
def test_masks_of_unknown_sizes(length):
    attention = layer()
    signature = [tf.TensorSpec([None, length, 32]), tf.TensorSpec([None, 1, length], tf.bool)]
    padding = np.arange(11)[None, None, :] < np.array([4, 11])[:, None, None]

    def fn(x, mask):
        return attention(x, x, attention_mask=mask, use_causal_mask=True)

    compare(fn, [values(2, 11, 32), padding], signature)


def by_hand(q, k, v, bias=None):
    scores = tf.matmul(q, k, transpose_b=True) / 3.0
    if bias is not None:
        scores += bias
    return tf.matmul(tf.nn.softmax(scores), v)


@pytest.mark.parametrize("shape", [(3, 6, 8), (2, 3, 6, 8)])
@pytest.mark.parametrize("biased", [False, True])
def test_attention_by_hand(shape, biased):
    bias = (
        [np.where(RANDOM.random((*shape[:-1], 6)) < 0.3, -1e9, 0).astype(np.float32)]
        if biased
        else []
    )
    compare(by_hand, [values(*shape), values(*shape), values(*shape), *bias])


def test_batches_that_broadcast():
    spec = tf.TensorSpec([None, None, 6, 8])
    compare(by_hand, [values(2, 3, 6, 8), values(1, 3, 6, 8), values(2, 1, 6, 8)], [spec] * 3)


def test_dot_product_attention_with_a_bias():
    def fn(q, b):
        return keras.ops.dot_product_attention(q, q, q, bias=b, scale=0.25)

    compare(fn, [values(2, 6, 3, 8), values(2, 3, 6, 6)])


def test_attention_layer():
    with tf.device("WGPU:0"):
        attention = keras.layers.Attention()
    compare(lambda x, y: attention([x, y]), [values(2, 6, 8), values(2, 5, 8)], fused=1)


def test_a_small_transformer_predicts():
    with tf.device("WGPU:0"):
        inputs = keras.Input([None], dtype="int32")
        x = keras.layers.Embedding(50, 32)(inputs)
        for _ in range(2):
            x = keras.layers.LayerNormalization()(
                x + keras.layers.MultiHeadAttention(4, 8, dropout=0.1)(x, x)
            )
            x = keras.layers.LayerNormalization()(x + keras.layers.Dense(32, activation="gelu")(x))
        model = keras.Model(inputs, keras.layers.Dense(5)(x))
        tokens = RANDOM.integers(0, 50, (4, 9)).astype(np.int32)
        got, nodes = optimized(tf.function(lambda t: model(t, training=False)), tf.constant(tokens))
    assert ops(nodes)[OP] == 2
    with tf.device("CPU:0"):
        cpu = keras.models.clone_model(model)
        cpu.set_weights(model.get_weights())
        want = cpu(tokens, training=False)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [11, None])
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_grouped_query_attention(length, mask):
    with tf.device("WGPU:0"):
        attention = keras.layers.GroupQueryAttention(8, 6, 2)
        attention.build([None, None, 32], [None, None, 32])

    def fn(x):
        return attention(x, x, use_causal_mask=mask == "causal")

    compare(fn, [values(2, 11, 32)], [tf.TensorSpec([None, length, 32])])


def test_heads_that_share_keys_are_not_repeated():
    def repeated(x):
        return tf.repeat(x, 3, axis=2)

    def fn(q, k, v):
        scores = tf.nn.softmax(tf.einsum("bthd,bshd->bhts", q, repeated(k)) * 0.5)
        return tf.einsum("bhts,bshd->bthd", scores, repeated(v))

    arrays = [values(2, 5, 6, 8), values(2, 9, 2, 8), values(2, 9, 2, 8)]
    signature = [
        tf.TensorSpec([None, 5, 6, 8]),
        tf.TensorSpec([None, 9, 2, 8]),
        tf.TensorSpec([None, 9, 2, 8]),
    ]
    compare(fn, arrays, signature)
    with tf.device("WGPU:0"):
        _, nodes = optimized(tf.function(fn), *[tf.constant(a) for a in arrays])
    assert "Tile" not in ops(nodes), ops(nodes)
