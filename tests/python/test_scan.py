"""Scans on WGPU against TensorFlow's CPU kernels."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from support import WGPU, on_both

FLAGS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.parametrize(("exclusive", "reverse"), FLAGS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64"])
def test_scans(dtype, exclusive, reverse, rng):
    # Small integers: their sums are exact in every type.
    x = rng.integers(-3, 4, (2, 150, 3)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    for axis in (0, 1, -1):
        on_both(partial(tf.cumsum, axis=axis, exclusive=exclusive, reverse=reverse), x)
        on_both(
            partial(tf.math.cumprod, axis=axis, exclusive=exclusive, reverse=reverse), np.sign(x)
        )
    if dtype != "int64":
        # TensorFlow's CPU kernel rounds to the half types at every step.
        tolerance = {"float16": 1e-2, "bfloat16": 8e-2}.get(dtype)
        scan = partial(tf.math.cumulative_logsumexp, axis=1, exclusive=exclusive, reverse=reverse)
        on_both(scan, x, rtol=tolerance, atol=tolerance)


def test_gradients(rng):
    def gradient(scan, x, weights):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(weights * scan(x))
        return tape.gradient(y, x)

    x = rng.uniform(0.5, 1.5, (4, 9)).astype("float32")
    weights = rng.normal(size=(4, 9)).astype("float32")
    for scan in (tf.cumsum, tf.math.cumprod, tf.math.cumulative_logsumexp):
        on_both(
            partial(gradient, partial(scan, axis=1, exclusive=True)),
            x,
            weights,
            rtol=1e-4,
            atol=1e-4,
        )


def test_infinities():
    x = np.array([-np.inf, 1.0, np.inf, 2.0, np.inf, np.nan, 0.0], "float32")
    on_both(tf.cumsum, x)
    on_both(tf.math.cumulative_logsumexp, x[:5])


def test_a_bad_axis(rng):
    with (
        tf.device(WGPU),
        pytest.raises(tf.errors.InvalidArgumentError, match=r"\[-2, 2\), but got 2"),
    ):
        tf.cumsum(tf.ones([2, 3]), axis=2)
