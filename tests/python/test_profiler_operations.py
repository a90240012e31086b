"""The number of operations on floats that profiles count: each family's own formula."""

from __future__ import annotations

from collections.abc import Callable

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from support import WGPU, float_ops

RNG = np.random.default_rng(3)
MATRIX = RNG.normal(size=(64, 64)).astype("float32")
POSITIVE = MATRIX @ MATRIX.T + 64 * np.eye(64, dtype="float32")
IMAGES = RNG.normal(size=(2, 8, 8, 16)).astype("float32")
COMPLEX = (IMAGES + 1j).reshape(32, 64).astype("complex64")
IDS = np.arange(64, dtype="int32") // 4


def counted(call: Callable[[], object]) -> int:
    """The operations of a call, which compiles nothing new."""
    with tf.device(WGPU):
        call()
        with tensorflow_wgpu.profile() as profile:
            call()
    return sum(row.flops for row in profile.devices[0].rows)


#: The call, and its number of operations: exactly, or between two bounds.
CASES = {
    "reduction": (lambda: tf.reduce_sum(MATRIX, 1), 64 * 64),
    "reduction with a map": (lambda: tf.norm(MATRIX, axis=1), (2 * 64 * 64, 2 * 64 * 64 + 128)),
    "complex reduction": (lambda: tf.reduce_sum(COMPLEX, 1), 2 * 32 * 64),
    "integers": (lambda: tf.reduce_sum(IDS), 0),
    "argmax": (lambda: tf.argmax(MATRIX, 1), 64 * 64),
    "bias": (lambda: tf.nn.bias_add(IMAGES, IMAGES[0, 0, 0]), 2048),
    "softmax": (lambda: tf.nn.softmax(MATRIX), 5 * 64 * 64),
    "pool": (lambda: tf.nn.max_pool2d(IMAGES, 2, 2, "VALID"), 2048),
    "scan": (lambda: tf.cumsum(MATRIX, 1), 64 * 64),
    "segments": (lambda: tf.math.segment_sum(MATRIX, IDS), (64 * 64, 2 * 64 * 64)),
    "scatter": (lambda: tf.tensor_scatter_nd_add(MATRIX, IDS[:, None], MATRIX), 64 * 64),
    "movement": (lambda: tf.transpose(MATRIX), 0),
    "fft": (lambda: tf.signal.fft(COMPLEX), 32 * 5 * 64 * 6),
    "real fft": (lambda: tf.signal.rfft(MATRIX), (64 * 5 * 32 * 5, 64 * 5 * 64 * 6)),
    # A third, two thirds and four thirds of n³ to the leading order.
    "cholesky": (lambda: tf.linalg.cholesky(POSITIVE), (64**3 / 3 * 0.99, 64**3 / 3 * 1.2)),
    "lu": (lambda: tf.linalg.lu(POSITIVE), (2 * 64**3 / 3, 2 * 64**3 / 3 * 1.1)),
    "qr": (lambda: tf.linalg.qr(POSITIVE), (8 * 64**3 / 3, 8 * 64**3 / 3 * 1.1)),
    "triangular": (lambda: tf.linalg.triangular_solve(POSITIVE, MATRIX), 64**3),
    "eigenvalues": (lambda: tf.linalg.eigvalsh(POSITIVE), (64**3, 1000 * 64**3)),
    "svd": (lambda: tf.linalg.svd(POSITIVE, compute_uv=False), (64**3, 1000 * 64**3)),
    "bilinear": (lambda: tf.image.resize(IMAGES, [16, 16]), 9 * 4 * 2048),
    "response": (lambda: tf.nn.lrn(IMAGES, 2), (2 * 5 + 4) * 2048),
    "einsum": (lambda: tf.einsum("ij,j->ij", MATRIX, MATRIX[0]), 64 * 64),
}


@pytest.mark.parametrize("name", CASES)
def test_an_op_counts(name: str):
    call, expected = CASES[name]
    low, high = expected if isinstance(expected, tuple) else (expected, expected)
    assert low <= counted(call) <= high


def test_batch_normalization_counts_statistics_and_gradients():
    scale = np.ones(16, "float32")

    def forward():
        return tf.raw_ops.FusedBatchNormV3(
            x=IMAGES, scale=scale, offset=scale, mean=[], variance=[], is_training=True
        )

    # Running statistics of 16 channels beside.
    assert 0 <= counted(forward) - (4 + 3) * 2048 <= 6 * 16
    normalized = forward()

    def backward():
        tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=IMAGES,
            x=IMAGES,
            scale=scale,
            reserve_space_1=normalized.reserve_space_1,
            reserve_space_2=normalized.reserve_space_2,
            reserve_space_3=normalized.reserve_space_3,
        )

    assert counted(backward) == (4 + 5) * 2048


def test_fused_rows_count():
    layer = keras.layers.LayerNormalization()
    layer.build(MATRIX.shape)

    @tf.function
    def normalize(x: tf.Tensor) -> tf.Tensor:
        return layer(x)

    with tf.device(WGPU):
        x = tf.constant(MATRIX)
        _, nodes = graphs.optimized(normalize, x)
    assert graphs.ops(nodes)["_WgpuFusedRowwise"] == 1, nodes
    # Two statistics, and the operations that use them.
    assert 4 * 64 * 64 <= counted(lambda: normalize(x)) <= 16 * 64 * 64


@pytest.mark.parametrize("fused", [False, True])
def test_an_optimizers_step_counts(fused: bool):
    with tf.device(WGPU):
        variable = tf.Variable(MATRIX)
        slots = [tf.Variable(tf.zeros_like(variable)) for _ in range(2)]
        gradient = tf.constant(MATRIX)

    def adam():
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots[0].handle,
            v=slots[1].handle,
            beta1_power=0.9,
            beta2_power=0.9,
            lr=0.1,
            beta1=0.9,
            beta2=0.9,
            epsilon=1e-3,
            grad=gradient,
        )

    def momentum():
        slots[0].assign(slots[0] * 0.9 + gradient)
        variable.assign_sub(slots[0] * 0.1)

    step = tf.function(momentum) if fused else adam
    low, high = (4, 4) if fused else (10, 25)
    assert low * 64 * 64 <= counted(step) <= high * 64 * 64


def test_a_recurrent_layer_counts_its_products():
    with tf.device(WGPU):
        layer = keras.layers.LSTM(32)
        x = tf.constant(RNG.normal(size=(4, 6, 16)).astype("float32"))

        @tf.function
        def run() -> tf.Tensor:
            return layer(x)

        ops = float_ops(run)
    assert ops["WGPU:0"]["_WgpuRecurrentLayer"] == 1, ops
    products = 2 * (16 + 32) * 4 * 32 * 4 * 6
    assert products <= counted(run) <= 1.1 * products
