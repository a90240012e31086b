"""LSTM, GRU and SimpleRNN layers with cells that programs derive or change: they compute the
results of their cells, in Keras 3 and in tf_keras.
"""

from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, python
from tensorflow_wgpu._stock import Stock
from test_recurrent import X, is_fused

layers = keras.layers


def halved(kind):
    """A cell of the kind whose outputs are halved."""

    class Cell(getattr(layers, f"{kind}Cell")):
        def call(self, inputs, states, training=False):
            output, states = super().call(inputs, states, training=training)
            return output * 0.5, states

    return Cell


def with_cell(kind, cell):
    """A class of layers that have this cell."""

    class Layer(getattr(layers, kind)):
        def __init__(self, units, **options):
            super().__init__(units, **options)
            self.cell = cell(units)

    return Layer


def patch_call(cell):
    call = cell.call

    def patched(inputs, states, training=False):
        output, states = call(inputs, states, training=training)
        return output + 1.0, states

    cell.call = patched


def check(make):
    """The same numbers on both devices, with the same weights, eagerly: a traced loop takes many
    times longer to compile.
    """
    x, results, weights = X[:, :3], [], None
    for device in (CPU, WGPU):
        with tf.device(device):
            layer = make()
            layer(tf.constant(x))
            generator = np.random.default_rng(1)
            weights = weights or [
                generator.uniform(-0.6, 0.6, w.shape) for w in layer.get_weights()
            ]
            layer.set_weights(weights)
            results.append(layer(tf.constant(x)).numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "change"), [("LSTM", 0), ("GRU", 0), ("SimpleRNN", 0), ("GRU", 1)]
)
def test_a_layer_computes_its_own_cell(kind, change):
    def make():
        if change:
            layer = getattr(layers, kind)(4, return_sequences=True)
            patch_call(layer.cell)
            return layer
        return with_cell(kind, halved(kind))(4, return_sequences=True)

    assert not is_fused(make())
    check(make)


def test_a_cell_of_another_type_casts_inputs():
    layer = layers.LSTM(4, dtype="float32")
    layer.cell = layers.LSTMCell(4, dtype="float16")
    assert not is_fused(layer)


def test_a_layer_that_changes_what_it_reads_is_still_one_op():
    class Doubled(layers.LSTM):
        def call(self, sequences, initial_state=None, mask=None, training=False):
            return super().call(sequences * 2.0, initial_state, mask, training)

    def make():
        return Doubled(4, return_sequences=True)

    assert is_fused(make())
    check(make)


@keras.saving.register_keras_serializable("test_recurrent_cells")
class Scaled(layers.SimpleRNN):
    """A layer whose two directions read different numbers."""

    def call(self, sequences, initial_state=None, mask=None, training=False):
        """Scales them."""
        factor = 0.5 if self.go_backwards else 2.0
        return super().call(sequences * factor, initial_state, mask, training)


@pytest.mark.parametrize(("own", "ops"), [("layers", 2), ("cells", 0), ("one cell", 1)])
def test_directions_compute_their_own(own, ops):
    """Both directions are one op if neither the layers nor the cells add anything."""

    def make():
        kind = Scaled if own == "layers" else layers.SimpleRNN
        layer = layers.Bidirectional(kind(3, return_sequences=True))
        if own != "layers":
            layer.backward_layer.cell = halved("SimpleRNN")(3)
        if own == "cells":
            layer.forward_layer.cell = halved("SimpleRNN")(3)
        return layer

    found = Counter(
        op.type
        for op in tf.function(make()).get_concrete_function(tf.constant(X)).graph.get_operations()
    )
    assert found["_WgpuRecurrentLayer"] == ops, found
    check(make)


def test_a_class_that_somebody_patched_is_not_keras_own(monkeypatch):
    class Cell:
        def call(self):
            """Keras's."""

    stock, cell = Stock(Cell), Cell()
    assert stock.made(cell)
    assert not stock.made(type("Derived", (Cell,), {})())
    monkeypatch.setattr(Cell, "call", lambda self: None)
    assert not stock.made(cell)


LEGACY = """
import numpy as np, tensorflow as tf, tf_keras
from tf_keras import layers
x = np.random.default_rng(0).normal(size=(3, 3, 5)).astype("float32")

def cell_of(kind):
    class Cell(getattr(layers, kind + "Cell")):
        def call(self, inputs, states, training=None):
            output, states = super().call(inputs, states, training=training)
            return output * 0.5, states
    return Cell

def patched(layer):
    call = layer.cell.call
    layer.cell.call = lambda *a, **k: (lambda y: (y[0] + 1.0, y[1]))(call(*a, **k))
    return layer

def of(kind, **options):
    layer = getattr(layers, kind)(4, return_sequences=True, **options)
    own = {k: v for k, v in layer.cell.get_config().items() if k in ("use_bias", "reset_after")}
    layer.cell = cell_of(kind)(4, **own)
    return layer

for make in (
    lambda: of("SimpleRNN"),
    lambda: of("LSTM", use_bias=False),
    lambda: of("GRU", reset_after=False),
    lambda: patched(layers.SimpleRNN(4)),
):
    found, weights = [], None
    for device in ("CPU:0", "WGPU:0"):
        with tf.device(device):
            layer = make()
            layer.build((None, 3, 5))
            weights = weights or [
                np.random.default_rng(1).uniform(-0.6, 0.6, w.shape) for w in layer.get_weights()]
            layer.set_weights(weights)
            found.append(layer(tf.constant(x)).numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
print("same")
"""


def test_tf_keras():
    ran = python(LEGACY)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.split()[-1] == "same"
