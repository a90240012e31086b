"""The gradient of fused attention: Keras layers and attention by hand, under a tape and in
training.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized

FORWARD, GRADIENT = "_WgpuFusedAttention", "_WgpuFusedAttentionGrad"
RANDOM = np.random.default_rng(1)


def values(*shape):
    return RANDOM.uniform(-1, 1, shape).astype(np.float32)


def gradients_of(fn, variables=()):
    """A function that returns the gradients of the sum of squares of `fn` with respect to its float
    arguments and to variables.
    """

    def gradients(*given):
        with tf.GradientTape() as tape:
            tape.watch([x for x in given if x.dtype.is_floating])
            loss = tf.reduce_sum(tf.cast(fn(*given), tf.float32) ** 2)
        sources = [x for x in given if x.dtype.is_floating] + list(variables)
        return [loss, *tape.gradient(loss, sources)]

    return gradients


def compare(on_wgpu, on_cpu, arrays, signature=None, fused=1, tolerance=2e-5):
    """Runs one function as a graph and eagerly (unoptimized) on WGPU, the other on the CPU; checks
    that the ops are there.
    """
    with tf.device("CPU:0"):
        want = on_cpu(*[tf.constant(a) for a in arrays])
    with tf.device("WGPU:0"):
        given = [tf.constant(a) for a in arrays]
        eager = on_wgpu(*given)
        got, nodes = optimized(tf.function(on_wgpu, input_signature=signature), *given)
    found = ops(nodes)
    assert (found[FORWARD], found[GRADIENT]) == (fused, fused), found
    assert found["Softmax"] == (0 if fused else found["Softmax"])
    for a, b, c in zip(got, eager, want, strict=True):
        assert a.dtype == c.dtype
        assert a.shape == c.shape
        a, b, c = (tf.cast(x, tf.float32).numpy() for x in (a, b, c))
        size = max(1.0, float(np.abs(c).max()))
        np.testing.assert_allclose(a, c, rtol=tolerance, atol=tolerance * size)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * size)
    return found


def layers(dtype="float32", **options):
    """The same layer on both devices."""
    built = []
    for device in ("WGPU:0", "CPU:0"):
        with tf.device(device):
            layer = keras.layers.MultiHeadAttention(4, 8, dtype=dtype, **options)
            layer.build([None, None, 32], [None, None, 32])
        built.append(layer)
    built[1].set_weights(built[0].get_weights())
    return built


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("mask", ["none", "causal", "padding"])
def test_multi_head_attention(dtype, mask):
    padding = np.arange(11)[None, None, :] < np.array([4, 11])[:, None, None]

    def of(layer):
        def fn(x):
            if mask == "padding":
                return layer(x, x, attention_mask=tf.constant(padding))
            return layer(x, x, use_causal_mask=mask == "causal")

        return gradients_of(fn, layer.trainable_variables)

    on_wgpu, on_cpu = layers(dtype)
    compare(
        of(on_wgpu), of(on_cpu), [values(2, 11, 32)], tolerance=2e-5 if dtype == "float32" else 8e-3
    )


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_grouped_queries(mask):
    """Keys and values are repeated for their queries; the gradients of both are one sum."""
    models = []
    for device in ("WGPU:0", "CPU:0"):
        with tf.device(device):
            models.append(keras.layers.GroupQueryAttention(16, 8, 2))
            models[-1].build([2, 10, 64], [2, 10, 64])
    wgpu, cpu = models
    cpu.set_weights([values(*w.shape) * 0.3 for w in wgpu.weights])
    wgpu.set_weights(cpu.get_weights())

    def of(layer):
        def call(x):
            return layer(x, x, use_causal_mask=mask == "causal")

        return gradients_of(call, layer.trainable_variables)

    found = compare(of(wgpu), of(cpu), [values(2, 10, 64)], tolerance=1e-4)
    # The gradients of repeated heads are one reduction; those of biases are computed with their
    # weights'.
    assert found["Sum"] == 0, found
    assert found["_WgpuFusedReduce"] >= 1, found
    assert found["_WgpuFusedMatMulWithSums"] == 4, found


@pytest.mark.parametrize("mask", ["causal", "padding"])
def test_masks_of_unknown_batches(mask):
    def of(layer):
        def fn(x, padding):
            if mask == "padding":
                return layer(x, x, attention_mask=padding)
            return layer(x, x, use_causal_mask=True)

        return gradients_of(fn, layer.trainable_variables)

    padding = np.arange(11)[None, None, :] < np.array([4, 11])[:, None, None]
    signature = [tf.TensorSpec([None, 11, 32]), tf.TensorSpec([None, 1, 11], tf.bool)]
    compare(*(of(layer) for layer in layers()), [values(2, 11, 32), padding], signature)


def test_cross_attention_of_unknown_sizes():
    on_wgpu, on_cpu = (
        gradients_of(layer, layer.trainable_variables) for layer in layers(value_dim=6)
    )
    spec = tf.TensorSpec([None, None, 32])
    compare(on_wgpu, on_cpu, [values(2, 5, 32), values(2, 9, 32)], [spec, spec])


def test_layers_with_dropout_that_do_not_drop():
    on_wgpu, on_cpu = (
        gradients_of(layer, layer.trainable_variables) for layer in layers(dropout=0.1)
    )
    compare(on_wgpu, on_cpu, [values(2, 7, 32), values(2, 9, 32)])


def test_dropout_between_stays():
    with tf.device("WGPU:0"):
        layer = keras.layers.MultiHeadAttention(4, 8, dropout=0.5)
        layer.build([2, 7, 32], [2, 7, 32])
        fn = gradients_of(lambda x: layer(x, x, training=True), layer.trainable_variables)
        _, nodes = optimized(tf.function(fn), tf.constant(values(2, 7, 32)))
    assert (ops(nodes)[FORWARD], ops(nodes)[GRADIENT]) == (0, 0)


def by_hand(q, k, v, mask=None):
    scores = tf.matmul(q, k, transpose_b=True) / 3.0
    if mask is not None:
        scores = tf.where(mask, scores, -1e9)
    return tf.matmul(tf.nn.softmax(scores), v)


@pytest.mark.parametrize("shape", [(3, 6, 8), (2, 3, 6, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_by_hand(shape, masked):
    # All keys are masked for the last row.
    mask = RANDOM.random((*shape[:-1], 6)) < 0.7
    mask[..., -1, :] = False
    fn = gradients_of(by_hand)
    compare(fn, fn, [values(*shape), values(*shape), values(*shape), *([mask] if masked else [])])


def test_a_bias_without_gradient():
    bias = np.where(RANDOM.random((2, 1, 6, 6)) < 0.3, -1e9, 0).astype(np.float32)

    def fn(q, k, v):
        scores = tf.matmul(q, k, transpose_b=True) * 0.25 + tf.constant(bias)
        return tf.matmul(tf.nn.softmax(scores), v)

    compare(
        gradients_of(fn),
        gradients_of(fn),
        [values(2, 3, 6, 8), values(2, 3, 6, 8), values(2, 3, 6, 5)],
    )


def test_a_bias_with_gradient_stays():
    def fn(q, bias):
        return tf.matmul(tf.nn.softmax(tf.matmul(q, q, transpose_b=True) + bias), q)

    compare(gradients_of(fn), gradients_of(fn), [values(2, 6, 8), values(2, 6, 6)], fused=0)


def test_weights_that_somebody_else_wants_stay():
    def fn(q):
        weights = tf.nn.softmax(tf.matmul(q, q, transpose_b=True))
        return tf.matmul(weights, q) + tf.reduce_sum(weights)

    compare(gradients_of(fn), gradients_of(fn), [values(2, 6, 8)], fused=0)


def test_batches_that_broadcast_stay():
    fn = gradients_of(by_hand)
    compare(fn, fn, [values(2, 3, 6, 8), values(1, 3, 6, 8), values(2, 1, 6, 8)], fused=0)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_layer(causal):
    def fn(x, y):
        return keras.layers.Attention()([x, y], use_causal_mask=causal)

    # The layer subtracts a number from the scores that a causal mask hides, which is not
    # recognized.
    compare(
        gradients_of(fn),
        gradients_of(fn),
        [values(2, 6, 8), values(2, 5, 8)],
        fused=0 if causal else 1,
    )


def encoder():
    """Two blocks with a classifier."""
    x = inputs = keras.Input((9, 32))
    for _ in range(2):
        x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(4, 8)(x, x))
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(32, activation="gelu")(x))
    return keras.Model(inputs, keras.layers.Dense(5)(keras.layers.GlobalAveragePooling1D()(x)))


def test_an_encoder_trains():
    x, y = values(8, 9, 32), RANDOM.integers(0, 5, 8)
    weights, losses, nodes = None, {}, None
    for side in ("fused", "plain", "CPU"):
        tf.config.optimizer.set_experimental_options({"use_plugin_optimizers": side == "fused"})
        with tf.device("CPU:0" if side == "CPU" else "WGPU:0"):
            model = encoder()
            weights = weights or model.get_weights()
            model.set_weights(weights)
            optimizer = keras.optimizers.SGD(0.1)
            optimizer.build(model.trainable_variables)
            loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

            def step(x, y, model=model, optimizer=optimizer, loss_of=loss_of):
                with tf.GradientTape() as tape:
                    loss = loss_of(y, model(x, training=True))
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
                return [loss, *gradients]

            function = tf.function(step)
            first, found = optimized(function, tf.constant(x), tf.constant(y))
            rest = [function(tf.constant(x), tf.constant(y))[0] for _ in range(2)]
            losses[side] = (np.array([first[0].numpy(), *rest]), [g.numpy() for g in first[1:]])
            nodes = nodes or found
    tf.config.optimizer.set_experimental_options({"use_plugin_optimizers": True})
    assert (ops(nodes)[FORWARD], ops(nodes)[GRADIENT]) == (2, 2)
    assert ops(nodes)["Softmax"] == 0
    assert losses["fused"][0][2] < losses["fused"][0][0]
    for side in ("plain", "CPU"):
        np.testing.assert_allclose(losses["fused"][0], losses[side][0], rtol=2e-5)
        for a, b in zip(losses["fused"][1], losses[side][1], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)
