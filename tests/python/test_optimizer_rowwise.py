"""Reductions over rows with the elementwise ops around them become one node, and give the results
of the ops.
"""

from __future__ import annotations

import graphs
import keras
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close

FUSED = "_WgpuFusedRowwise"
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-11}


def check(fn, *arrays, fused, absent=(), signature=None, scale=1.0):
    """Runs `fn` as a tf.function on WGPU, op by op on WGPU, and on the CPU, and compares. Returns
    the ops that ran.
    """

    def run(device, call):
        with tf.device(device):
            return call(*[tf.constant(a) for a in arrays])

    wanted = tf.nest.flatten(run(CPU, fn))
    separate = tf.nest.flatten(run(WGPU, fn))
    compiled = tf.function(fn, input_signature=signature, autograph=False)
    result, nodes = run(WGPU, lambda *tensors: graphs.optimized(compiled, *tensors))
    ops = graphs.ops(nodes)
    assert fused is None or ops[FUSED] == fused, ops
    assert not set(absent) & set(ops), ops
    result = tf.nest.flatten(result)
    assert len(result) == len(wanted)
    for got, plain, want in zip(result, separate, wanted):
        tolerance = scale * TOLERANCE.get(want.dtype.name, 0)
        assert_close(got.numpy(), want.numpy(), tolerance, tolerance)
        assert_close(got.numpy(), plain.numpy(), tolerance, tolerance)
    return ops


def inputs(rng, *shapes, dtype="float32"):
    return [tf.cast(rng.normal(size=s), dtype).numpy() for s in shapes]


def stateless(layer, shape):
    """The layer as a function of its input and weights, and random weights."""
    layer.build(shape)

    def call(x, *weights):
        return layer.stateless_call(weights, [], x)[0]

    return call, [tuple(w.shape) for w in layer.trainable_variables]


def with_gradients(fn):
    """`fn` and the gradients of all its arguments except the last, which is the gradient of the
    result.
    """

    def call(*args):
        with tf.GradientTape() as tape:
            tape.watch(args[:-1])
            y = fn(*args[:-1])
        return y, tape.gradient(y, args[:-1], output_gradients=args[-1])

    return call


L = keras.layers
LAYERS = {
    "layer": (lambda: L.LayerNormalization(), (4, 6, 8)),
    "layer, odd": (lambda: L.LayerNormalization(), (5, 3, 37)),
    "layer, long": (lambda: L.LayerNormalization(), (3, 1030)),
    "layer, two axes": (lambda: L.LayerNormalization(axis=(1, 2)), (4, 6, 8)),
    "layer, plain": (lambda: L.LayerNormalization(center=False, scale=False), (4, 6, 8)),
    "rms": (lambda: L.RMSNormalization(), (4, 6, 8)),
    "rms, odd": (lambda: L.RMSNormalization(), (7, 33)),
    "unit": (lambda: L.UnitNormalization(), (4, 6, 8)),
    "softmax over two axes": (lambda: L.Softmax(axis=(1, 2)), (4, 6, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(rng, name):
    make, shape = LAYERS[name]
    call, weights = stateless(make(), shape)
    check(
        call, *inputs(rng, shape, *weights), fused=1, absent=["Mean", "Sum", "Max", "Mul", "AddV2"]
    )


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers(rng, name):
    make, shape = LAYERS[name]
    call, weights = stateless(make(), shape)
    # Gradients of weights are sums over rows, which may be more than a hundred.
    ops = check(
        with_gradients(call),
        *inputs(rng, shape, *weights, shape),
        fused=1,
        absent=["Mean", "Max", "Tile"],
        scale=10,
    )
    assert ops["Sum"] <= len(weights), ops


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", "float16", "float64"])
@pytest.mark.parametrize("make", [L.LayerNormalization, L.RMSNormalization])
def test_layers_of_other_types(rng, make, dtype):
    shape = (4, 6, 16)
    call, weights = stateless(make(dtype=dtype), shape)
    x, dy = inputs(rng, shape, shape, dtype=dtype.removeprefix("mixed_"))
    given = inputs(rng, *weights, dtype="float32" if dtype.startswith("mixed_") else dtype)
    check(call, x, *given, fused=1, absent=["Mean", "Rsqrt"])
    # Constants of float64 are tensors, and a program may have too many of them.
    whole = {"fused": None} if dtype == "float64" else {"fused": 1, "absent": ["Mean", "Tile"]}
    check(with_gradients(call), x, *given, dy, scale=10, **whole)


def test_the_forward_pass_keeps_only_what_the_gradient_cannot_compute(rng):
    """With a product between them, forward and backward pass are two nodes that share only the
    values of rows.
    """
    call, weights = stateless(L.LayerNormalization(), (24, 8))

    def network(x, gamma, beta, w):
        with tf.GradientTape() as tape:
            tape.watch([x, gamma, beta])
            loss = tf.reduce_sum(tf.linalg.matmul(call(x, gamma, beta), w) ** 2)
        return loss, tape.gradient(loss, [x, gamma, beta])

    check(
        network,
        *inputs(rng, (24, 8), *weights, (8, 5)),
        fused=2,
        absent=["Mean", "Tile", "Rsqrt"],
        scale=20,
    )


@pytest.mark.parametrize("shape", [(4, 6, 8), (3, 7)])
def test_unknown_batch(rng, shape):
    call, weights = stateless(L.LayerNormalization(), (None, *shape[1:]))
    spec = tf.TensorSpec((None, *shape[1:]), tf.float32)
    signature = [spec] + [tf.TensorSpec(w, tf.float32) for w in weights]
    check(call, *inputs(rng, shape, *weights), fused=1, absent=["Mean"], signature=signature)
    check(
        call, *inputs(rng, (1, *shape[1:]), *weights), fused=1, absent=["Mean"], signature=signature
    )


def standardized(x):
    return (x - tf.reduce_mean(x, -1, keepdims=True)) / tf.math.reduce_std(x, -1, keepdims=True)


def log_softmax(x):
    return x - tf.reduce_logsumexp(x, axis=-1, keepdims=True)


def masked_mean(x):
    mask = x > 0.25
    kept = tf.where(mask, x, 0.0)
    count = tf.reduce_sum(tf.cast(mask, tf.float32), -1)
    return kept - tf.expand_dims(tf.reduce_sum(kept, -1) / (count + 1.0), -1)


FUNCTIONS = {
    "standardized": standardized,
    "log softmax": log_softmax,
    "masked mean": masked_mean,
    "l2 normalize": lambda x: tf.linalg.l2_normalize(x, -1),
    "range": lambda x: (
        (x - tf.reduce_min(x, -1, keepdims=True)) / tf.reduce_max(x, -1, keepdims=True)
    ),
    "product": lambda x: x / tf.reduce_prod(1.0 + x * x / 16.0, -1, keepdims=True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(4, 6, 8), (11, 5)])
def test_functions(rng, name, shape):
    check(
        FUNCTIONS[name],
        *inputs(rng, shape),
        fused=1,
        absent=["Sum", "Mean", "Max", "Prod"],
        scale=10,
    )


def test_masked_softmax_gradient(rng):
    """Softmax is a separate kernel; the nodes after it in the gradient are one node."""

    def masked(x):
        return L.Softmax()(x, mask=x > 0)

    check(with_gradients(masked), *inputs(rng, (4, 6, 8), (4, 6, 8)), fused=1, absent=["Sum"])


def test_reductions_that_lead_nowhere_stay(rng):
    check(lambda x: tf.reduce_sum(tf.square(x), -1), *inputs(rng, (4, 8)), fused=0)
    check(lambda x: x - tf.reduce_mean(x, 0), *inputs(rng, (4, 8)), fused=0)


def test_incompatible_shapes_are_the_callers_error(rng):
    @tf.function(input_signature=[tf.TensorSpec((None, 8)), tf.TensorSpec((None, 8))])
    def add(x, y):
        z = x + y
        return z - tf.reduce_mean(z, -1, keepdims=True)

    with (
        tf.device(WGPU),
        pytest.raises(
            tf.errors.InvalidArgumentError, match=r"Incompatible shapes: \[2,8\] vs. \[3,8\]"
        ),
    ):
        add(*[tf.constant(a) for a in inputs(rng, (2, 8), (3, 8))])


def test_broadcast_operands(rng):
    def fn(x, row, column, scale):
        z = x * row + column
        return (z - tf.reduce_max(z, -1, keepdims=True)) * scale, tf.reduce_max(z, -1)

    check(fn, *inputs(rng, (4, 6, 8), (6, 1), (8,), (4, 1, 8)), fused=1, absent=["Max", "Mul"])
