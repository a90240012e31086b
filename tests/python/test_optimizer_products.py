"""Products of one operand, sums of products and recomputed activations, in transformer blocks: the
nodes that are left, and the results compared with the CPU's.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import assert_close

WGPU, CPU = "WGPU:0", "CPU:0"
WIDTH, HEADS, LENGTH = 32, 4, 12
JOINED = "_WgpuFusedJoinedMatMul"
JOINED_WITH_SUMS = "_WgpuFusedJoinedMatMulWithSums"
WITH_ARGUMENT = "_WgpuFusedMatMulWithArgument"
#: Ops that cost nothing on the device.
FREE = {
    "Const",
    "ExpandDims",
    "Identity",
    "NoOp",
    "ReadVariableOp",
    "Reshape",
    "Squeeze",
    "_Arg",
    "_Retval",
}


def block(activation="gelu", first=False, dtype="float32"):
    """A transformer block with its normalizations after or before its parts."""
    inputs = keras.Input((LENGTH, WIDTH))
    attention = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dtype=dtype)
    norms = [keras.layers.LayerNormalization(dtype=dtype) for _ in range(2)]
    grow = keras.layers.Dense(4 * WIDTH, activation=activation, dtype=dtype)
    shrink = keras.layers.Dense(WIDTH, dtype=dtype)
    if first:
        x = norms[0](inputs)
        x = inputs + attention(x, x)
        x = x + shrink(grow(norms[1](x)))
    else:
        x = norms[0](inputs + attention(inputs, inputs))
        x = norms[1](x + shrink(grow(x)))
    model = keras.Model(inputs, x)
    rng = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(rng.normal(0, 0.2, weight.shape) + (weight.path.endswith("gamma")))
    return model


def gradients(model):
    """A function for loss and gradients."""

    def function(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(x, training=True), tf.float32)))
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    return function


def both(make, call, signature=None, tolerance=1e-4):
    """The nodes of a function of a model on WGPU, whose results are compared with the CPU's."""
    x = np.random.default_rng(5).normal(size=(3, LENGTH, WIDTH)).astype(np.float32)
    with tf.device(CPU):
        want = call(make())(tf.constant(x))
    with tf.device(WGPU):
        function = tf.function(call(make()), input_signature=signature)
        got, nodes = optimized(function, tf.constant(x))
    for a, b in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
        assert a.dtype == b.dtype
        largest = max(1.0, float(np.abs(b.numpy().astype(np.float32)).max()))
        assert_close(a.numpy(), b.numpy(), tolerance, tolerance * largest)
    return ops(nodes)


@pytest.mark.parametrize("first", [False, True])
def test_a_block_forward_is_seven_nodes(first):
    found = both(lambda: block(first=first), lambda model: lambda x: model(x, training=False))
    dispatched = {op: count for op, count in found.items() if op not in FREE}
    assert found[JOINED] == 1, dispatched
    assert sum(dispatched.values()) <= 8, dispatched
    assert found["AddV2"] == 0, dispatched


@pytest.mark.parametrize("activation", ["gelu", "silu", "relu", "tanh"])
def test_a_block_with_gradients(activation):
    found = both(lambda: block(activation), gradients)
    # Query, key and value, and the gradients of their weights, which are computed with their
    # biases'.
    assert (found[JOINED], found[JOINED_WITH_SUMS]) == (1, 1), found
    # No gradient of a weight is a batch of products that is summed afterwards.
    assert found["Sum"] == 0, found
    # Gradients of biases are computed with those of their weights, or with a normalization's.
    assert found["_WgpuFusedMatMulWithSums"] >= 2, found
    assert found["BiasAddGrad"] == 0, found
    # Nothing remains of the activation: its gradient is an epilogue, and the product that computes
    # its argument stores both if the gradient reads the argument.
    assert found["_WgpuFusedElementwise"] == 0, found
    assert found[WITH_ARGUMENT] == (activation in {"gelu", "silu"}), found


def test_a_batch_of_unknown_size():
    signature = [tf.TensorSpec([None, LENGTH, WIDTH])]
    found = both(block, gradients, signature)
    assert (found[JOINED], found[JOINED_WITH_SUMS]) == (1, 1), found
    # The activation's argument is stored with its value, and no intermediate value is stored.
    assert (found[WITH_ARGUMENT], found["_WgpuFusedElementwise"]) == (1, 0), found
    # A normalization is one node with the addition at its end.
    assert found["AddV2"] == 0, found
    # Sums over dimensions that might have been broadcast are gone; those of the normalizations
    # remain.
    assert found["BroadcastGradientArgs"] == 0, found
    assert found["Sum"] <= 2, found
    # Shapes of layers are constants except for the batch; the loss counts its elements.
    assert found["Pack"] == 0, found
    assert max(found["Prod"], found["GatherV2"]) <= 1, found


def test_a_batch_of_unknown_size_forward():
    signature = [tf.TensorSpec([None, LENGTH, WIDTH])]
    found = both(block, lambda model: lambda x: model(x, training=False), signature)
    dispatched = {op: count for op, count in found.items() if op not in FREE}
    assert sum(dispatched.values()) <= 8, dispatched
    assert found["Shape"] == 0, found


def test_mixed_precision():
    with tf.device(CPU):
        keras.config.set_dtype_policy("float32")
    found = both(lambda: block(dtype="mixed_float16"), gradients, tolerance=3e-2)
    assert found[JOINED] >= 1, found


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", [tf.nn.silu, tf.nn.gelu, tf.nn.leaky_relu])
def test_an_activation_and_its_argument(activation, dtype):
    rng = np.random.default_rng(11)
    x, w, b, v = (
        tf.cast(rng.normal(0, 0.5, size), dtype) for size in ((9, 16), (16, 24), (24,), (24, 8))
    )

    def function(x, w, b, v):
        with tf.GradientTape() as tape:
            tape.watch([w, b, v])
            y = activation(tf.nn.bias_add(x @ w, b)) @ v
            loss = tf.reduce_sum(tf.square(tf.cast(y, tf.float32)))
        return [y, *tape.gradient(loss, [w, b, v])]

    with tf.device(CPU):
        want = function(*map(tf.identity, (x, w, b, v)))
    with tf.device(WGPU):
        operands = [tf.identity(t) for t in (x, w, b, v)]
        eager = function(*operands)
        got, nodes = optimized(tf.function(function), *operands)
    tolerance = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
    for a, e, c in zip(got, eager, want, strict=True):
        assert a.dtype == e.dtype == c.dtype
        largest = max(1.0, float(np.abs(np.float32(c)).max()))
        for value in (a, e):
            assert_close(np.float32(value), np.float32(c), tolerance, tolerance * largest)
    found = ops(nodes)
    # The result and its gradient may be computed the same way.
    assert found[WITH_ARGUMENT] >= 1, found
    assert found["_WgpuFusedElementwise"] == 0, found


def test_weights_of_normalizations_share_a_node():
    """Two blocks: the last normalization of all is computed with the loss."""

    def make():
        blocks = [block(), block()]
        return keras.Sequential([keras.Input((LENGTH, WIDTH)), *blocks])

    found = both(make, gradients)
    counts = {op: count for op, count in found.items() if op not in FREE}
    # The three whose rows belong to a program have their sums in two nodes.
    one = both(block, gradients)
    assert found["_WgpuFusedReduce"] <= one["_WgpuFusedReduce"] + 1, counts


def test_training_takes_the_same_path():
    x = np.random.default_rng(7).normal(size=(8, LENGTH, WIDTH)).astype(np.float32)
    losses = {}
    for device in (WGPU, CPU):
        with tf.device(device):
            model = block()
            model.compile(keras.optimizers.SGD(0.05), "mse")
            losses[device] = [model.train_on_batch(x, x[:, ::-1]) for _ in range(4)]
    assert_close(losses[WGPU], losses[CPU], 1e-4, 1e-5)
    assert losses[WGPU][-1] < losses[WGPU][0]
