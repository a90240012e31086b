"""Gradients of gradients, and Keras' convolution layers with theirs: all forced onto WGPU, against
the CPU.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


X, IMAGE, VOLUME = normal(4, 7), normal(2, 6, 6, 3), normal(1, 4, 4, 4, 2)
LABELS = tf.constant([1, 2, 0, 6])

#: Name to a function and its arguments.
TWICE = {
    "conv1d": (lambda x, w: tf.nn.conv1d(x, w, 1, "SAME"), normal(2, 7, 3), normal(3, 3, 4)),
    "conv2d": (lambda x, w: tf.nn.conv2d(x, w, 2, "VALID"), IMAGE, normal(3, 3, 3, 4)),
    "conv2d_transpose": (
        lambda x, w: tf.nn.conv2d_transpose(x, w, (2, 12, 12, 4), 2),
        IMAGE,
        normal(3, 3, 4, 3),
    ),
    "conv3d": (lambda x, w: tf.nn.conv3d(x, w, [1] * 5, "SAME"), VOLUME, normal(2, 2, 2, 2, 3)),
    "depthwise_conv2d": (
        lambda x, w: tf.nn.depthwise_conv2d(x, w, [1] * 4, "SAME"),
        IMAGE,
        normal(3, 3, 3, 2),
    ),
    "max_pool2d": (lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"), IMAGE),
    "max_pool3d": (lambda x: tf.nn.max_pool3d(x, 2, 2, "VALID"), VOLUME),
    "avg_pool2d": (lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME"), IMAGE),
    "avg_pool3d": (lambda x: tf.nn.avg_pool3d(x, 2, 2, "SAME"), VOLUME),
    "batch_norm": (
        lambda x, s, o: tf.compat.v1.nn.fused_batch_norm(x, s, o, is_training=True)[0],
        IMAGE,
        normal(3),
        normal(3),
    ),
    "softmax": (tf.nn.softmax, X),
    "log_softmax": (tf.nn.log_softmax, X),
    "cross_entropy": (lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, x), X),
    "einsum": (
        lambda x, y: tf.einsum("aecd,abcd->acbe", x, y),
        normal(2, 3, 2, 4),
        normal(2, 5, 2, 4),
    ),
    "einsum_diagonal": (lambda x, y: tf.einsum("iij,jk->ik", x, y), normal(3, 3, 4), normal(4, 2)),
    "complex_matmul": (
        lambda x, y: tf.abs(tf.matmul(tf.complex(x, y), tf.complex(y, x), adjoint_a=True)),
        normal(2, 5, 3),
        normal(2, 5, 3),
    ),
}


def on_both(run) -> None:
    """Results of `run` under WGPU, eager and compiled, and under the CPU."""

    def under(device: str, call) -> list[np.ndarray]:
        def placed():
            with tf.device(device):
                return run()

        return [y.numpy() for y in call(placed)()]

    want = under(CPU, lambda f: f)
    for call in (lambda f: f, tf.function):
        for got, wanted in zip(under(WGPU, call), want, strict=True):
            assert_close(
                got, wanted, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(wanted).max(initial=0))
            )


@pytest.mark.parametrize("name", TWICE)
def test_gradients_of_gradients(name):
    fn, *arrays = TWICE[name]

    def run():
        variables = [tf.constant(x) for x in arrays]
        with tf.GradientTape() as outer:
            outer.watch(variables)
            with tf.GradientTape() as inner:
                inner.watch(variables)
                y = fn(*variables)
                loss = tf.reduce_sum(y * y * y)
            first = inner.gradient(loss, variables)
            norm = tf.add_n([tf.reduce_sum(g * g) for g in first])
        return [y, *first, *outer.gradient(norm, variables)]

    on_both(run)


L = keras.layers
#: Name to a layer and the shape of its input.
LAYERS = {
    "Conv1DTranspose": (lambda: L.Conv1DTranspose(4, 3, strides=2, padding="same"), (2, 6, 3)),
    "Conv2DTranspose": (lambda: L.Conv2DTranspose(4, 3, strides=2, output_padding=1), (2, 5, 5, 3)),
    "Conv3DTranspose": (
        lambda: L.Conv3DTranspose(4, 2, strides=2, padding="same"),
        (2, 3, 4, 3, 3),
    ),
    "SeparableConv1D": (
        lambda: L.SeparableConv1D(4, 3, depth_multiplier=2, padding="same"),
        (2, 6, 3),
    ),
    "SeparableConv2D": (lambda: L.SeparableConv2D(4, 3, strides=2), (2, 7, 7, 3)),
    "DepthwiseConv1D": (lambda: L.DepthwiseConv1D(3, depth_multiplier=2), (2, 6, 3)),
    "causal Conv1D": (lambda: L.Conv1D(4, 3, dilation_rate=2, padding="causal"), (2, 9, 3)),
    "grouped Conv2D": (lambda: L.Conv2D(4, 3, groups=2), (2, 7, 7, 4)),
    "dilated Conv2D": (lambda: L.Conv2D(4, 3, dilation_rate=2), (2, 7, 7, 4)),
    "dilated DepthwiseConv2D": (lambda: L.DepthwiseConv2D(3, dilation_rate=2), (2, 9, 9, 3)),
    "EinsumDense": (
        lambda: L.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d"),
        (2, 3, 4),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_convolution_layers(name):
    make, shape = LAYERS[name]
    x = normal(*shape)
    layers = {}
    for device in (WGPU, CPU):
        with tf.device(device):
            keras.utils.set_random_seed(1)
            layers[device] = make()
            layers[device].build(shape)
    layers[WGPU].set_weights(layers[CPU].get_weights())

    def run():
        inputs = tf.constant(x)
        layer = layers[WGPU if "WGPU" in inputs.device else CPU]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = layer(inputs, training=True)
            loss = tf.reduce_sum(y * y)
        return [y, *tape.gradient(loss, [inputs, *[v.value for v in layer.trainable_variables]])]

    on_both(run)
