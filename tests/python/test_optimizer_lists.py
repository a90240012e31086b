"""Gradients of loops: what comes out of lists has a shape again, so that it is fused."""

from __future__ import annotations

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close

#: What a gradient of a recurrent layer consists of besides products.
ELEMENTWISE = {"AddN", "Mul", "Neg", "SigmoidGrad", "Sub", "TanhGrad"}


def gradients(layer, signature=None):
    """A function of a batch that gives the layer's result with the gradients of its weights and of the batch."""

    @tf.function(input_signature=signature)
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = tf.reduce_sum(y * y)
        return y, *tape.gradient(loss, [x, *layer.trainable_variables])

    return call


def left_over(nodes):
    """The elementwise ops of float tensors in the gradient's loop that run on their own."""
    names = [n for n in nodes if n.op in ELEMENTWISE and "while" in n.name and "gradient" in n.name]
    return [n.name for n in names if n.attr["T"].type == tf.float32.as_datatype_enum]


@pytest.mark.parametrize("batch", [3, None])
@pytest.mark.parametrize("kind", [keras.layers.LSTM, keras.layers.GRU, keras.layers.SimpleRNN])
def test_gradients_of_recurrent_layers_are_fused(rng, kind, batch):
    shape = (9, 8)
    with tf.device(WGPU):
        layer = kind(16, return_sequences=True)
        layer.build((batch, *shape))
    with tf.device(CPU):
        other = kind(16, return_sequences=True)
        other.build((batch, *shape))
        other.set_weights(layer.get_weights())
    signature = [tf.TensorSpec([batch, *shape])]
    call, reference = gradients(layer, signature), gradients(other, signature)
    for count in (3,) if batch else (3, 1, 5):
        x = rng.normal(size=(count, *shape)).astype("float32")
        with tf.device(WGPU):
            got, nodes = graphs.optimized(call, tf.constant(x))
            # Without a known batch, TensorFlow's gradients sum what might have been broadcast.
            assert batch is None or len(left_over(nodes)) <= 2
        with tf.device(CPU):
            want = reference(tf.constant(x))
        for g, w in zip(got, want, strict=True):
            assert_close(g.numpy(), w.numpy())


def test_a_list_of_several_shapes(rng):
    """What a step pushes has another shape each time."""

    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                tf.autograph.experimental.set_loop_options(shape_invariants=[(y, tf.TensorShape([None, 4]))])
                y = tf.concat([y, tf.tanh(y)], 0) * 0.5
            loss = tf.reduce_sum(tf.sin(y))
        return tape.gradient(loss, x)

    x = rng.normal(size=(2, 4)).astype("float32")
    results = []
    for device in (WGPU, CPU):
        with tf.device(device):
            results.append(tf.function(call)(tf.constant(x)).numpy())
    assert_close(*results)


def test_branches_within_a_loop(rng):
    """A loop whose steps keep one thing or another."""

    def call(x, steps):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for i in tf.range(steps):
                mean = tf.reduce_mean(y, 0, keepdims=True)
                y = tf.cond(i % 2 == 0, lambda y=y: tf.tanh(y) * x, lambda y=y, mean=mean: tf.sigmoid(y) + mean)
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, x)

    x = rng.normal(size=(2, 4)).astype("float32")
    for steps in (0, 1, 4):
        results = []
        for device in (WGPU, CPU):
            with tf.device(device):
                results.append(tf.function(call)(tf.constant(x), tf.constant(steps)).numpy())
        assert np.isfinite(results[0]).all()
        assert_close(*results)
