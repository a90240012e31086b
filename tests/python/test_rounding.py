"""Rounding within fused kernels: a function gives the same bits as eager mode.

Values between the steps of a fused kernel are rounded as memory would round them, so an op with a
jump, such as a comparison or floor, gets the same argument in both. Each case has an op with a jump
after or before a kind of fusion. Sums have few bits, so that their order does not matter.
"""

from __future__ import annotations

import functools

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
from support import WGPU

HALVES = ["float16", "bfloat16"]


def index(z):
    """Whole numbers from 0 to 6."""
    return tf.cast(tf.abs(z) * 8, tf.int64) % 7


# `z` was just computed, `w` is the same value from eager mode.
JUMPS = {
    "Equal": lambda z, w: z == w,
    "NotEqual": lambda z, w: z != w,
    "Greater": lambda z, w: z > w,
    "GreaterEqual": lambda z, w: z >= w,
    "Less": lambda z, w: z < w,
    "LessEqual": lambda z, w: z <= w,
    "IsFinite": lambda z, w: tf.where(tf.math.is_finite(z * 300), z, -w),
    "IsInf": lambda z, w: tf.where(tf.math.is_inf(z * 3e4), z, -w),
    "IsNan": lambda z, w: tf.math.is_nan(z * z.dtype.max - w * w.dtype.max),
    "Sign": lambda z, w: tf.sign(z - w),
    "Floor": lambda z, w: tf.floor(z * 2),
    "Ceil": lambda z, w: tf.math.ceil(z * 2),
    "Round": lambda z, w: tf.round(z * 2),
    "FloorMod": lambda z, w: z % tf.constant(0.3, z.dtype),
    "FloorDiv": lambda z, w: z // tf.constant(0.3, z.dtype),
    "TruncateDiv": lambda z, w: tf.truncatediv(z, tf.constant(0.3, z.dtype)),
    "ReluGrad": lambda z, w: tf.raw_ops.ReluGrad(gradients=w, features=z - w),
    "Relu6Grad": lambda z, w: tf.raw_ops.Relu6Grad(gradients=w, features=z * 2),
    "Maximum": lambda z, w: tf.maximum(z, w) - tf.minimum(z, w),
    "Cast to int64": lambda z, w: tf.cast(z * 8, tf.int64),
    "Cast to uint8": lambda z, w: tf.cast(tf.abs(z) * 8, tf.uint8),
    "Cast to bool": lambda z, w: tf.cast(z - w, tf.bool),
    "Cast to float32": lambda z, w: tf.cast(z, tf.float32) * 3,
    "Cast to float64": lambda z, w: tf.cast(z, tf.float64) * 3,
    "Cast to another half": lambda z, w: tf.cast(
        z, tf.bfloat16 if z.dtype == tf.float16 else tf.float16
    ),
    "ArgMax": lambda z, w: tf.argmax(z * w, -1),
    "OneHot": lambda z, w: tf.one_hot(index(z), 7),
    "Gather": lambda z, w: tf.gather(tf.range(7.0), index(z)),
    "TopK": lambda z, w: tf.math.top_k(z * w, 2)[1],
}


def chain(x, y, m, b):
    return (x * y + b) * y - x


def product(x, y, m, b):
    return tf.matmul(x, m) * tf.constant(0.3, x.dtype) + b


def shares(x, y, m, b):
    values = x * y
    return values / tf.reduce_sum(values * values, -1, keepdims=True) * 7 + x


def behind_a_maximum(x, y, m, b):
    values = x * y + b
    return values - tf.reduce_max(values, -1, keepdims=True) * x


def of_sums(x, y, m, b):
    return tf.reduce_sum(x * y, 0, keepdims=True) * tf.constant(0.1, x.dtype) + b


def concat(x, y, m, b):
    halves = tf.split(x, 2, -1)
    others = tf.split(y, 2, -1)
    turned = [halves[0] * others[0] - halves[1] * others[1], halves[1] * others[0] * others[0]]
    return tf.concat(turned, -1)


# The jumps that are tried after every kind of fusion.
SOME = ["Equal", "Less", "IsFinite", "Sign", "Floor", "FloorMod", "ReluGrad", "ArgMax", "OneHot"]
SOME += ["Cast to float32", "Cast to int64"]

FUSIONS = {
    "contraction": product,
    "rowwise": shares,
    "maximum": behind_a_maximum,
    "reduce": of_sums,
    "concat": concat,
}


def operands(dtype, shape=(6, 24)):
    rng = np.random.default_rng(5)
    # Sixteenths of up to 4: products have up to 12 bits, sums of 24 of them are exact in float32.
    sixteenths = [rng.integers(-64, 64, size=s) / 16 for s in (shape, shape, (24, 24), (24,))]
    return [tf.constant(a, dtype) for a in sixteenths]


def bits(tensors):
    arrays = [np.asarray(t.numpy()) for t in tf.nest.flatten(tensors)]
    return [(a.dtype, a.shape, np.ascontiguousarray(a).reshape(-1).view("uint8")) for a in arrays]


def assert_same_bits(function, *args):
    """Fails unless `function` gives the same bits in eager mode and as a `tf.function`; returns the
    ops that ran.
    """
    want = function(*args)
    got, nodes = graphs.optimized(tf.function(function, autograph=False), *args)
    for (dtype, shape, g), (want_dtype, want_shape, w) in zip(bits(got), bits(want), strict=True):
        assert (dtype, shape) == (want_dtype, want_shape)
        np.testing.assert_array_equal(g, w)
    return graphs.ops(nodes)


@pytest.fixture(autouse=True)
def on_the_device():
    before = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    with tf.device(WGPU):
        yield
    tf.config.set_soft_device_placement(before)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_jump_reads_what_memory_would_hold(dtype, fusion):
    inputs = operands(dtype)
    values = FUSIONS[fusion]
    stored = values(*inputs)

    def jumps(*inputs):
        return [JUMPS[name](values(*inputs), stored) for name in SOME]

    ops = assert_same_bits(jumps, *inputs)
    assert any(op.startswith("_WgpuFused") for op in ops), ops


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", JUMPS)
def test_a_jump_behind_a_chain(dtype, name):
    inputs = operands(dtype)
    stored = chain(*inputs)
    ops = assert_same_bits(lambda *inputs: JUMPS[name](chain(*inputs), stored), *inputs)
    assert any(op.startswith("_WgpuFused") for op in ops), ops


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "reduce", [tf.reduce_max, tf.reduce_min, tf.reduce_prod, tf.reduce_sum, tf.reduce_mean]
)
def test_a_reduction_reads_what_memory_would_hold(dtype, reduce):
    x, y, _, b = operands(dtype)
    if reduce is tf.reduce_prod:
        x, y, b = x[:, :3], y[:, :3], b[:3]
    ops = assert_same_bits(lambda x, y, b: [reduce(x * y + b, a) for a in (0, 1)], x, y, b)
    assert any(op.startswith("_WgpuFused") for op in ops), ops


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 3), (0, 4), (3, 1, 65)])
@pytest.mark.parametrize("reduce", [tf.reduce_max, tf.reduce_min])
def test_the_gradient_of_a_maximum(rng, dtype, shape, reduce):
    """The elements that equal the maximum: the gradient compares recomputed values."""
    x = tf.constant(rng.normal(size=shape), dtype)

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = reduce(x * x, -1) if x.shape.rank else reduce(x * x)
        return tape.gradient(y, x)

    assert_same_bits(gradient, x)
    assert np.isfinite(tf.cast(gradient(x), tf.float32).numpy()).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_strided_and_broadcast_operands(dtype):
    x, y, _, b = operands(dtype, (6, 24))

    def values(x, y, b):
        z = tf.transpose(x)[::2, ::3] * y[:1, :1] + b[:12, None]
        return z, tf.floor(z), z == tf.round(z)

    assert_same_bits(values, x, y, b)


def test_overflow_is_seen():
    x = tf.constant([300.0, 2.0], "float16")

    @tf.function(autograph=False)
    def values(x):
        z = x * x
        tenth = tf.constant(0.1, x.dtype)
        return (
            tf.where(tf.math.is_finite(z), z, 0),
            tf.cast(z, tf.float32),
            tf.floor(x * tenth),
            tf.reduce_sum(tf.where(tf.math.is_finite(z), z, 0)),
        )

    finite, wide, floors, total = values(x)
    assert finite.numpy().tolist() == [0, 4]
    assert wide.numpy().tolist() == [np.inf, 4]
    assert floors.numpy().tolist() == [30, 0]
    assert total.numpy() == 4


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("gate", ["product", "attention"])
def test_keras_layers_train_through_a_maximum(rng, policy, gate):
    """A product of a layer with itself, and a gate by the maximum over channels (CBAM)."""
    # Keras places its own inputs.
    tf.config.set_soft_device_placement(True)
    with tf.device(None):
        train_through_a_maximum(rng, policy, gate)


def train_through_a_maximum(rng, policy, gate):
    inputs = keras.Input((6, 6, 4))
    h = keras.layers.Conv2D(8, 3, padding="same", dtype=policy)(inputs)
    if gate == "product":
        h = keras.layers.Multiply(dtype=policy)([h, h])
        h = keras.layers.GlobalMaxPooling2D(dtype=policy)(h)
    else:
        most = keras.layers.Lambda(
            functools.partial(keras.ops.max, axis=-1, keepdims=True), dtype=policy
        )(keras.layers.Multiply(dtype=policy)([h, h]))
        h = keras.layers.Multiply(dtype=policy)([h, most])
        h = keras.layers.Flatten(dtype=policy)(h)
    outputs = keras.layers.Dense(2, dtype="float32")(h)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", jit_compile=False)
    x, y = rng.normal(size=(8, 6, 6, 4)), rng.normal(size=(8, 2))
    model.fit(x.astype("float32"), y.astype("float32"), epochs=2, verbose=0)
    assert all(np.isfinite(w.numpy()).all() for w in model.weights)


def test_a_long_loop_is_no_part_of_a_fused_kernel():
    """A kernel of a software adapter runs at most 65,535 iterations in an invocation."""
    x = tf.random.stateless_uniform((4, 1024), (1, 2), 0.49, 0.51)
    a = tf.constant(20_000.0)

    def total(x):
        return tf.reduce_sum(tf.math.betainc(a, a, x), -1)

    ops = assert_same_bits_or_near(total, x)
    assert ops["Betainc"] == 1, ops


def assert_same_bits_or_near(function, *args):
    got, nodes = graphs.optimized(tf.function(function, autograph=False), *args)
    np.testing.assert_allclose(got.numpy(), function(*args).numpy(), rtol=1e-5)
    return graphs.ops(nodes)
