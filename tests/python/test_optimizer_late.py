"""Copies of weights in another form: they exist one at a time, in loops too."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, DEVICE, WGPU

LAYERS, STEPS, HEADS, WIDTH = 8, 10, 4, 1024
#: The bytes of a layer's weights.
LAYER = WIDTH * WIDTH * 4


def run_on(device: str, in_loop: bool, as_type: str) -> tuple[np.ndarray, int]:
    """The result of layers whose kernels a product reads transposed or converted, as those of heads
    are, and the most memory beside the weights.
    """
    rng = np.random.default_rng(1)
    shape = (HEADS, WIDTH, WIDTH // HEADS)
    with tf.device(device):
        weights = [
            tf.Variable(rng.normal(size=shape).astype("float32") / 32) for _ in range(LAYERS)
        ]
        start = tf.constant(rng.normal(size=(1, WIDTH)).astype("float32"))

        def layers(x):
            for w in weights:
                kernel = tf.reshape(tf.transpose(tf.cast(w, as_type), (1, 0, 2)), (WIDTH, WIDTH))
                x = tf.tanh(tf.cast(tf.cast(x, as_type) @ kernel, "float32"))
            return x

        @tf.function
        def function(x):
            if not in_loop:
                return layers(x)
            return tf.while_loop(lambda i, _: i < STEPS, lambda i, x: (i + 1, layers(x)), (0, x))[1]

        function(start).numpy()
        if device == CPU:
            return function(start).numpy(), 0
        tf.config.experimental.reset_memory_stats(DEVICE)
        before = tf.config.experimental.get_memory_info(DEVICE)["current"]
        found = function(start).numpy()
        return found, tf.config.experimental.get_memory_info(DEVICE)["peak"] - before


@pytest.mark.own_process
@pytest.mark.parametrize("as_type", ["float32", "bfloat16"])
@pytest.mark.parametrize("in_loop", [False, True])
def test_there_is_one_copy_at_a_time(in_loop, as_type):
    want, _ = run_on(CPU, in_loop, as_type)
    got, peak = run_on(WGPU, in_loop, as_type)
    np.testing.assert_allclose(got, want, atol=1e-4 if as_type == "float32" else 0.1)
    # The next layer's copy begins before the last one is freed.
    assert peak < 3.5 * LAYER, peak / LAYER
