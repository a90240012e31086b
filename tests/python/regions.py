"""Functions with and without regions (TF_WGPU_CAPTURE)."""

from __future__ import annotations

import graphs
import keras
import numpy as np
import tensorflow as tf
from support import WGPU
from tensorflow_wgpu import _regions

REGION = _regions.OP


def traced(monkeypatch, setting: str, make):
    """Calls the tf.function that `make` returns, under a setting of TF_WGPU_CAPTURE. Returns the
    function's result and the number of its regions.
    """
    monkeypatch.setenv("TF_WGPU_CAPTURE", setting)
    with tf.device(WGPU):
        result, bodies = graphs.ran(make())
    return result, sum(graphs.ops(nodes)[REGION] for nodes in bodies)


def compare(monkeypatch, make, least=1):
    """Compares a function with and without regions, bit by bit."""
    want, none = traced(monkeypatch, "off", make)
    assert none == 0
    for setting in ("on", "check"):
        got, regions = traced(monkeypatch, setting, make)
        assert regions >= least
        for g, w in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
            np.testing.assert_array_equal(g.numpy(), w.numpy())
    return got


def training(build, shape, optimizer=keras.optimizers.Adam):
    """Makes a function that trains a model for some steps, and returns losses and weights."""

    def make():
        keras.utils.set_random_seed(1)
        rng = np.random.default_rng(2)
        x = tf.constant(rng.normal(size=shape).astype("float32"))
        y = tf.constant(rng.integers(0, 10, shape[0]))
        model = build()
        model(x)
        chosen = optimizer()
        chosen.build(model.trainable_variables)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            chosen.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return value

        def steps():
            # A read-back waits for the shaders, without which no step is recorded.
            losses = [tf.constant(step().numpy()) for _ in range(5)]
            return losses, [tf.identity(v) for v in model.variables]

        return steps

    return make
