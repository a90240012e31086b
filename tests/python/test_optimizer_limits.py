"""Long functions: the size of one fused node is bounded, so the time of a first call is
proportional to the number of steps.

Time limits are at least ten times the time of a call; without bounds these calls did not end.
"""

from __future__ import annotations

import time

import graphs
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close

LIMIT = 120.0


def normalize(x):
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.sin((x - mean) * tf.math.rsqrt(variance + 1e-5))


def sine_and_mean(x):
    return 0.4 * tf.sin(x) + 0.5 * tf.reduce_mean(x)


def softmax(x):
    weights = tf.exp(x - tf.reduce_max(x, -1, keepdims=True))
    return 4.0 * weights / tf.reduce_sum(weights, -1, keepdims=True)


def special(x):
    return (
        tf.math.erf(tf.tan(0.5 * x))
        + 0.1 * tf.math.lgamma(1.5 + tf.square(x))
        - 0.1 * tf.pow(1.0 + tf.abs(x), 0.5)
    )


def diamond(x):
    return 0.25 * (x * x + tf.sin(x))


CHAINS = {
    "normalize, 8": (normalize, 8, (64, 32)),
    "normalize, 40": (normalize, 40, (64, 32)),
    "sine and mean, 12": (sine_and_mean, 12, (8,)),
    "sine and mean, 100": (sine_and_mean, 100, (8,)),
    "softmax, 40": (softmax, 40, (64, 32)),
    "special, 12": (special, 12, (64,)),
    "diamond, 200": (diamond, 200, (64,)),
}


def chained(step, n, x):
    # A small part of each step, so that rounding errors do not grow from step to step.
    start = x
    for _ in range(n):
        x = 0.7 * start + 0.3 * step(x)
    return x


@pytest.mark.parametrize("name", CHAINS)
def test_a_long_chain_comes_to_an_end(name, rng):
    step, n, shape = CHAINS[name]
    array = rng.normal(size=shape).astype(np.float32)
    with tf.device(CPU):
        want = chained(step, n, tf.constant(array, tf.float64))
    with tf.device(WGPU):
        x = tf.constant(array)
        start = time.monotonic()
        function = tf.function(lambda x: chained(step, n, x), autograph=False)
        got, nodes = graphs.optimized(function, x)
        got = got.numpy()
        seconds = time.monotonic() - start
    assert any(op.startswith("_WgpuFused") for op in graphs.ops(nodes))
    assert seconds < LIMIT, f"the first call took {seconds:.1f} s"
    assert_close(got, want.numpy().astype(np.float32), 1e-4, 1e-4)


def test_a_long_chain_and_an_assignment_come_to_an_end(rng):
    array = rng.normal(size=(16, 8)).astype(np.float32)

    def chain(x):
        for k in range(300):
            x = (
                0.9 * tf.tanh(x) + 0.1 * tf.reduce_mean(x, -1, keepdims=True)
                if k % 2
                else tf.nn.relu(x) - 0.1
            )
        return x

    with tf.device(WGPU):
        variable = tf.Variable(tf.zeros((16, 8)))

        @tf.function(autograph=False)
        def function(x):
            variable.assign(chain(x))

        start = time.monotonic()
        function(tf.constant(array))
        got = variable.numpy()
        seconds = time.monotonic() - start
    with tf.device(CPU):
        want = chain(tf.constant(array)).numpy()
    assert seconds < LIMIT, f"the first call took {seconds:.1f} s"
    assert_close(got, want, 1e-4, 1e-4)
