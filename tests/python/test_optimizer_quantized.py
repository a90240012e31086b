"""Layers that Keras quantizes to int8: two dispatches, with the CPU's results. One quantizes the
inputs row by row, the other is the product with both scales, bias and activation.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import CPU, WGPU

PRODUCT = "_WgpuFusedBatchMatMulV3"
ROWS = "_WgpuFusedRowwise"
#: Ops without a dispatch: they are on the host, or only change a shape.
FREE = {
    "Const",
    "ExpandDims",
    "Identity",
    "NoOp",
    "Pack",
    "ReadVariableOp",
    "Reshape",
    "Shape",
    "Squeeze",
    "StridedSlice",
    "_Arg",
    "_Retval",
}


def dense(**kwargs):
    return lambda: keras.layers.Dense(12, **kwargs)


def heads(**kwargs):
    """Queries of an attention layer."""
    return lambda: keras.layers.EinsumDense(
        "abc,cde->abde", output_shape=(None, 4, 6), bias_axes="de", **kwargs
    )


def projection(**kwargs):
    """The projection of an attention layer's heads."""
    return lambda: keras.layers.EinsumDense(
        "abcd,cde->abe", output_shape=(None, 10), bias_axes="e", **kwargs
    )


def quantized(make, shape):
    """The same layer on WGPU and on the CPU."""
    layers = []
    for device in (WGPU, CPU):
        with tf.device(device):
            layers.append(make())
            layers[-1].build((None, *shape[1:]))
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=v.shape).astype("float32") for v in layers[0].variables]
    for layer, device in zip(layers, (WGPU, CPU)):
        with tf.device(device):
            layer.set_weights(weights)
            layer.quantize("int8")
    return layers


def check(make, shape, unknown, exact=1e-3, casts=0):
    """Compares a layer with the CPU, and counts the ops that run for it."""
    wgpu, cpu = quantized(make, shape)
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    with tf.device(CPU):
        want = cpu(tf.constant(x)).numpy()
    signature = tf.TensorSpec([None if unknown else shape[0], *shape[1:]])
    with tf.device(WGPU):
        function = tf.function(lambda v: wgpu(v), input_signature=[signature])
        got, nodes = optimized(function, tf.constant(x))
    found = ops(nodes)
    dispatched = {op: count for op, count in found.items() if op not in FREE}
    assert (found[PRODUCT], found[ROWS]) == (1, 1), dispatched
    assert sum(dispatched.values()) <= 2 + casts, dispatched
    # A number that is nearly halfway between two steps may be rounded to either.
    got, want = tf.cast(got, "float64").numpy(), want.astype("float64")
    step = 2 * np.abs(x).max() * np.abs(want).max() / 127
    assert np.abs(got - want).max() < step
    assert np.mean(np.abs(got - want) < exact * np.abs(want).max()) > 0.9


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
def test_dense(activation, unknown):
    check(dense(activation=activation), (4, 16), unknown)


@pytest.mark.parametrize("unknown", [False, True])
def test_dense_on_sequences(unknown):
    check(dense(activation="relu"), (2, 5, 16), unknown)


@pytest.mark.parametrize("unknown", [False, True])
def test_heads(unknown):
    check(heads(), (2, 5, 16), unknown)


@pytest.mark.parametrize("unknown", [False, True])
def test_projections_of_heads(unknown):
    check(projection(), (2, 5, 4, 6), unknown)


def test_widths_that_are_no_multiple_of_four():
    check(dense(), (3, 7), False)


def test_bfloat16():
    """Scales and bias are float32; Keras converts them."""
    make = dense(activation="relu", dtype="mixed_bfloat16")
    check(make, (4, 16), False, exact=2e-2, casts=2)


def test_a_model_of_quantized_layers():
    def make():
        return keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(8)])

    wgpu, cpu = quantized(make, (8, 12))
    x = np.random.default_rng(0).normal(size=(8, 12)).astype("float32")
    with tf.device(CPU):
        want = cpu(tf.constant(x)).numpy()
    with tf.device(WGPU):
        got, nodes = optimized(tf.function(lambda v: wgpu(v)), tf.constant(x))
    found = ops(nodes)
    assert found[PRODUCT] == found[ROWS] == 2, found
    assert not found["Cast"], found
    assert np.abs(got.numpy() - want).max() < 0.1 * np.abs(want).max()
