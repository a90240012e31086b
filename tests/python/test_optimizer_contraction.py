"""Contractions with epilogues in the graphs of Keras layers, with the results and gradients of the
CPU.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import CPU, WGPU, assert_close

ELEMENTWISE = {
    "AddN",
    "AddV2",
    "BiasAdd",
    "Mul",
    "Sub",
    "Relu",
    "Tanh",
    "Sigmoid",
    "Elu",
    "Selu",
    "Softplus",
    "Erf",
    "LeakyRelu",
}


def built(make, shape, seed=1):
    """The model `make()` on WGPU and on the CPU, with the same weights, none of which has its
    initial value.
    """
    models = []
    for device in (WGPU, CPU):
        with tf.device(device):
            models.append(make())
            models[-1].build((None, *shape[1:]))
    rng = np.random.default_rng(seed)
    for wgpu, cpu in zip(*(m.variables for m in models)):
        if wgpu.dtype.startswith("float"):
            # Variances are positive.
            value = (
                np.abs(rng.normal(size=wgpu.shape)) * 0.3 + 0.1
                if "variance" in wgpu.path
                else rng.normal(size=wgpu.shape) * 0.3
            )
            wgpu.assign(value)
            cpu.assign(value)
    return models


def check(make, shape, fused, training=False, left=(), **tolerance):
    """Compares inference on WGPU, optimized and eager, with the CPU.

    `fused` is the number of fused contractions, and `left` lists the elementwise ops that may
    remain.
    """
    wgpu, cpu = built(make, shape)
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    with tf.device(CPU):
        want = cpu(x, training=training).numpy()
    with tf.device(WGPU):
        signature = tf.TensorSpec([None, *shape[1:]])
        function = tf.function(lambda v: wgpu(v, training=training), input_signature=[signature])
        got, nodes = optimized(function, tf.constant(x))
        eager = wgpu(tf.constant(x), training=training)
        again = function(tf.constant(x[:1]))
    counts = ops(nodes)
    assert {
        op: n for op, n in counts.items() if op.startswith("_WgpuFused") and "Elementwise" not in op
    } == fused, counts
    assert not (counts.keys() & ELEMENTWISE) - set(left), counts
    assert_close(got.numpy(), want, **tolerance)
    assert_close(got.numpy(), eager.numpy(), **tolerance)
    if not training:
        assert_close(again.numpy(), want[:1], **tolerance)
    return counts


@pytest.mark.parametrize(
    "activation",
    [
        None,
        "relu",
        "tanh",
        "sigmoid",
        "elu",
        "selu",
        "softplus",
        "silu",
        "gelu",
        "leaky_relu",
        "relu6",
        "hard_sigmoid",
        "mish",
        "exponential",
    ],
)
def test_dense(activation):
    check(
        lambda: keras.Sequential([keras.layers.Dense(12, activation=activation)]),
        (5, 7),
        {"_WgpuFusedMatMul": 1},
        rtol=1e-5,
        atol=1e-5,
    )


def test_dense_on_sequences():
    counts = check(
        lambda: keras.Sequential(
            [keras.layers.Dense(12, activation="gelu"), keras.layers.Dense(3)]
        ),
        (2, 5, 7),
        {"_WgpuFusedMatMul": 2},
    )
    assert not counts["MatMul"]


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_convolution_norm_activation(data_format):
    def make():
        axis = -1 if data_format == "channels_last" else 1
        return keras.Sequential(
            [
                keras.layers.Conv2D(8, 3, padding="same", data_format=data_format, use_bias=False),
                keras.layers.BatchNormalization(axis=axis),
                keras.layers.ReLU(),
                keras.layers.Conv2D(5, 2, strides=2, data_format=data_format, activation="relu"),
            ]
        )

    shape = (2, 8, 9, 3) if data_format == "channels_last" else (2, 3, 8, 9)
    check(make, shape, {"_WgpuFusedConv2D": 2}, left=("Mul", "Sub", "AddV2"), rtol=1e-4, atol=1e-4)


def test_residual_block():
    def make():
        inputs = keras.Input((8, 8, 4))
        y = keras.layers.Conv2D(4, 3, padding="same", activation="relu")(inputs)
        y = keras.layers.Conv2D(4, 3, padding="same")(y)
        return keras.Model(inputs, keras.layers.ReLU()(keras.layers.Add()([inputs, y])))

    check(make, (2, 8, 8, 4), {"_WgpuFusedConv2D": 2}, rtol=1e-4, atol=1e-4)


def test_depthwise_and_separable():
    def make():
        return keras.Sequential(
            [
                keras.layers.DepthwiseConv2D(3, padding="same", activation="relu"),
                keras.layers.SeparableConv2D(6, 3, activation="silu"),
            ]
        )

    counts = check(
        make,
        (2, 8, 8, 4),
        {"_WgpuFusedDepthwiseConv2dNative": 1, "_WgpuFusedConv2D": 1},
        rtol=1e-4,
        atol=1e-4,
    )
    assert counts["DepthwiseConv2dNative"] == 1


def test_three_and_one_dimensions():
    check(
        lambda: keras.Sequential([keras.layers.Conv3D(4, 2, activation="relu")]),
        (2, 4, 5, 6, 3),
        {"_WgpuFusedConv3D": 1},
        rtol=1e-4,
        atol=1e-4,
    )
    check(
        lambda: keras.Sequential([keras.layers.Conv1D(4, 3, activation="tanh")]),
        (2, 9, 3),
        {"_WgpuFusedConv2D": 1},
        rtol=1e-4,
        atol=1e-4,
    )


def test_zero_padding_is_the_convolutions():
    def make():
        return keras.Sequential(
            [
                keras.layers.ZeroPadding2D(((1, 2), (0, 3))),
                keras.layers.Conv2D(4, 3, strides=2),
                keras.layers.ZeroPadding2D(1),
                keras.layers.DepthwiseConv2D(3),
            ]
        )

    counts = check(
        make,
        (2, 9, 8, 3),
        {"_WgpuFusedConv2D": 1, "_WgpuFusedDepthwiseConv2dNative": 1},
        rtol=1e-4,
        atol=1e-4,
    )
    assert not counts["Pad"]

    def volume():
        return keras.Sequential([keras.layers.ZeroPadding3D((1, 0, 2)), keras.layers.Conv3D(4, 2)])

    counts = check(volume, (1, 4, 4, 4, 2), {"_WgpuFusedConv3D": 1}, rtol=1e-4, atol=1e-4)
    assert not counts["Pad"]


def test_transposes_are_the_products():
    a, b = np.random.default_rng(3).normal(size=(2, 3, 4, 5)).astype("float32")

    def function(a, b):
        return tf.matmul(tf.transpose(a, [0, 2, 1]), b), tf.matmul(a[0], tf.transpose(b[0]))

    want = [np.matmul(a.transpose(0, 2, 1), b), np.matmul(a[0], b[0].T)]
    with tf.device(WGPU):
        got, nodes = optimized(tf.function(function), tf.constant(a), tf.constant(b))
    assert not ops(nodes)["Transpose"]
    for g, w in zip(got, want):
        assert_close(g.numpy(), w)


def test_mixed_precision():
    def make():
        keras.mixed_precision.set_dtype_policy("mixed_float16")
        try:
            return keras.Sequential(
                [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4, dtype="float32")]
            )
        finally:
            keras.mixed_precision.set_dtype_policy("float32")

    check(make, (6, 8), {"_WgpuFusedMatMul": 2}, rtol=5e-3, atol=5e-3)


def gradients(model, x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
    return loss, tape.gradient(loss, model.trainable_variables)


@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_training(kind):
    def dense():
        return keras.Sequential(
            [
                keras.layers.Dense(16, activation="gelu"),
                keras.layers.Dense(8, activation="relu"),
                keras.layers.Dense(3),
            ]
        )

    def convolution():
        return keras.Sequential(
            [
                keras.layers.Conv2D(6, 3, activation="relu"),
                keras.layers.DepthwiseConv2D(3, activation="tanh"),
                keras.layers.ZeroPadding2D(1),
                keras.layers.Conv2D(4, 3, activation="silu"),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(3),
            ]
        )

    shape = (5, 7) if kind == "dense" else (2, 9, 9, 3)
    wgpu, cpu = built(dense if kind == "dense" else convolution, shape)
    rng = np.random.default_rng(2)
    x, y = (
        rng.normal(size=shape).astype("float32"),
        rng.normal(size=(shape[0], 3)).astype("float32"),
    )
    with tf.device(CPU):
        want = gradients(cpu, tf.constant(x), tf.constant(y))
    with tf.device(WGPU):
        got, nodes = optimized(
            tf.function(lambda x, y: gradients(wgpu, x, y)), tf.constant(x), tf.constant(y)
        )
    counts = ops(nodes)
    if kind == "dense":
        assert counts["_WgpuFusedMatMul"] >= 3, counts
    else:
        assert counts["_WgpuFusedConv2D"] == 2, counts
        assert counts["_WgpuFusedDepthwiseConv2dNative"] == 1, counts
    for g, w in zip(tf.nest.flatten(got), tf.nest.flatten(want)):
        assert_close(g.numpy(), w.numpy(), rtol=1e-4, atol=1e-5)


def test_inverted_bottleneck():
    """A block of EfficientNet: expansion, depthwise convolution, squeeze and excitation,
    projection, residual.
    """

    def make():
        inputs = keras.Input((8, 8, 4))
        norm = keras.layers.BatchNormalization
        y = keras.layers.Activation("silu")(
            norm()(keras.layers.Conv2D(12, 1, use_bias=False)(inputs))
        )
        y = keras.layers.Activation("silu")(
            norm()(keras.layers.DepthwiseConv2D(3, padding="same", use_bias=False)(y))
        )
        s = keras.layers.Reshape((1, 1, 12))(keras.layers.GlobalAveragePooling2D()(y))
        s = keras.layers.Conv2D(3, 1, activation="silu")(s)
        s = keras.layers.Conv2D(12, 1, activation="sigmoid")(s)
        y = norm()(keras.layers.Conv2D(4, 1, use_bias=False)(keras.layers.Multiply()([y, s])))
        return keras.Model(inputs, keras.layers.Add()([inputs, y]))

    check(
        make,
        (2, 8, 8, 4),
        {"_WgpuFusedConv2D": 4, "_WgpuFusedDepthwiseConv2dNative": 1},
        left=("Mul", "Sub", "AddV2"),
        rtol=1e-3,
        atol=1e-3,
    )


def test_an_error_names_op_and_shapes():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None]),
            tf.TensorSpec([None, None]),
            tf.TensorSpec([None]),
        ]
    )
    def function(a, b, bias):
        return tf.nn.relu(tf.matmul(a, b) + bias)

    def zeros(*shape):
        return tf.zeros(shape)

    with tf.device(WGPU):
        # One row and a longer bias: the result is as large as the bias demands.
        got, nodes = optimized(function, zeros(1, 3), zeros(3, 1), tf.constant([1.0, -1.0]))
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"Incompatible shapes: \[2,4\] vs\. \[3\]"
        ):
            function(zeros(2, 3), zeros(3, 4), zeros(3))
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=r"Matrix size-incompatible: In\[0\]: \[2,3\], In\[1\]: \[5,4\]",
        ):
            function(zeros(2, 3), zeros(5, 4), zeros(4))
    assert ops(nodes)["_WgpuFusedMatMul"] == 1
    np.testing.assert_array_equal(got, [[1.0, 0.0]])
