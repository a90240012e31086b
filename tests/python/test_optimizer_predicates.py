"""Conditions of loops and branches that stay in host memory: no step of a loop waits for the
device.
"""

from __future__ import annotations

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from support import CPU, WGPU, assert_close

HOST = {"_WgpuHostLogicalAnd", "_WgpuHostLogicalOr", "_WgpuHostLogicalNot"}


def read_backs(call):
    """The number of read-backs while `call` runs."""
    before = tensorflow_wgpu.statistics()["WGPU:0"]["downloads"]
    call()
    return tensorflow_wgpu.statistics()["WGPU:0"]["downloads"] - before


@pytest.mark.parametrize("kind", [keras.layers.LSTM, keras.layers.GRU])
def test_a_recurrent_layer_waits_for_no_step(rng, kind):
    steps = 20
    x = rng.normal(size=(3, steps, 5)).astype("float32")
    with tf.device(WGPU):
        layer = kind(7, use_cudnn=False)
        call, given = tf.function(layer), tf.constant(x)
        got, nodes = graphs.optimized(call, given)
        assert HOST & graphs.ops(nodes).keys()
        assert read_backs(lambda: call(given)) == 0
    with tf.device(CPU):
        other = kind(7, use_cudnn=False)
        other.build(x.shape)
        other.set_weights(layer.get_weights())
        assert_close(got.numpy(), other(tf.constant(x)).numpy())


@pytest.mark.parametrize("limit", [0, 3, 7])
@pytest.mark.parametrize("how", ["and", "or", "not"])
def test_loops_end_when_they_should(how, limit):
    conditions = {
        "and": lambda i, n: tf.logical_and(i < n, i < 5),
        "or": lambda i, n: tf.logical_or(i < n, i < 2),
        "not": lambda i, n: tf.logical_not(i >= n),
    }

    def loop(x, n):
        condition = conditions[how]
        return tf.while_loop(
            lambda i, _: condition(i, n), lambda i, y: (i + 1, y * 2.0 + 1.0), (0, x)
        )

    x = np.arange(6, dtype="float32").reshape(2, 3)
    results = []
    for device in (WGPU, CPU):
        with tf.device(device):
            result, nodes = graphs.optimized(tf.function(loop), tf.constant(x), tf.constant(limit))
            results.append([t.numpy() for t in result])
            # TensorFlow itself turns the negated comparison around.
            if device == WGPU and how != "not":
                assert HOST & graphs.ops(nodes).keys()
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_a_branch_is_chosen_without_waiting():
    @tf.function
    def choose(x, n):
        return tf.cond(tf.logical_and(n > 2, n < 5), lambda: x * 2.0, lambda: x - 1.0)

    with tf.device(WGPU):
        x = tf.constant([1.0, 2.0])
        for n, want in ((1, [0.0, 1.0]), (3, [2.0, 4.0]), (5, [0.0, 1.0])):
            count = tf.constant(n)
            choose(x, count)
            results = []
            assert (
                read_backs(lambda count=count, results=results: results.append(choose(x, count)))
                == 0
            )
            np.testing.assert_array_equal(results[0].numpy(), want)
