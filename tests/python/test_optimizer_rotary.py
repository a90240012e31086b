"""Rotary embeddings in every notation: one dispatch each, with numbers as on the CPU."""

from __future__ import annotations

import graphs
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from support import CPU, WGPU, assert_close

OP = "_WgpuFusedConcat"
#: Ops that only move values.
MOVES = ("ConcatV2", "Neg", "Pack", "Slice", "Split", "SplitV", "StridedSlice", "Unpack")


def joined(x):
    low, high = tf.split(x, 2, -1)
    return tf.concat([-high, low], -1)


def stacked(x):
    """As Keras's layers write it."""
    low, high = tf.split(x, 2, -1)
    return tf.reshape(tf.stack((-high, low), -2), tf.shape(x))


def sliced(x):
    half = x.shape[-1] // 2
    return tf.concat([-x[..., half:], x[..., :half]], -1)


def interleaved(x):
    """Neighbours in place of halves."""
    return tf.reshape(tf.stack([-x[..., 1::2], x[..., ::2]], -1), tf.shape(x))


#: How the halves of a tensor are exchanged, the first one with its sign changed.
NOTATIONS = [joined, stacked, sliced, interleaved]


def rotated(exchanged):
    """The embedding, for sines and cosines of all elements."""
    return lambda x, cos, sin: (x * cos + exchanged(x) * sin) * tf.constant(0.25, x.dtype)


def by_halves(x, cos, sin):
    """The same with arithmetic before the concatenation, for sines and cosines of a half."""
    low, high = tf.split(x, 2, -1)
    return tf.concat([low * cos - high * sin, low * sin + high * cos], -1)


EMBEDDINGS = [by_halves, *map(rotated, NOTATIONS)]
NAMES = ["by_halves", *(notation.__name__ for notation in NOTATIONS)]


def with_gradient(function):
    def both(x, *angles):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x, *angles)
            loss = tf.reduce_sum(tf.cast(y * y * y, tf.float32))
        return y, tape.gradient(loss, x)

    return both


def operands(rng, dtype, embedding=None, shape=(2, 5, 4, 10)):
    last = shape[-1] // 2 if embedding is by_halves else shape[-1]
    arrays = [rng.normal(size=size) for size in (shape, (shape[1], 1, last), (last,))]
    return [tf.cast(tf.constant(array, tf.float32), dtype) for array in arrays]


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=NAMES)
def test_rotary_embeddings(rng, embedding, dtype):
    tolerance = {tf.float32: 1e-5, tf.float16: 1e-2, tf.bfloat16: 8e-2}[dtype]
    with tf.device(CPU):
        given = operands(rng, dtype, embedding)
        want = with_gradient(embedding)(*given)
    with tf.device(WGPU):
        given = [tf.identity(t) for t in given]
        eager = with_gradient(embedding)(*given)
        y, nodes = graphs.optimized(tf.function(embedding, autograph=False), *given)
        compiled = tf.function(with_gradient(embedding), autograph=False)
        trained, gradient_nodes = graphs.optimized(compiled, *given)
    for results in (eager, trained):
        for got, expected in zip(results, want, strict=True):
            assert got.dtype == dtype
            largest = max(1.0, float(np.abs(np.float32(expected)).max()))
            assert_close(np.float32(got), np.float32(expected), tolerance, tolerance * largest)
    # The values are those of the nodes by themselves, bit for bit.
    np.testing.assert_array_equal(np.float32(y), np.float32(eager[0]))
    found = graphs.ops(nodes)
    assert found[OP] == 1, found
    assert not [op for op in MOVES if found[op]], found
    found = graphs.ops(gradient_nodes)
    assert found[OP] >= 1, found
    # The gradient of a strided slice is a padded part, which no concatenation joins.
    if embedding not in (EMBEDDINGS[3], EMBEDDINGS[4]):
        assert not [op for op in MOVES if found[op]], found


@pytest.mark.parametrize("embedding", EMBEDDINGS, ids=NAMES)
def test_the_dispatches_of_a_rotary_embedding(rng, embedding):
    with tf.device(WGPU):
        given = operands(rng, tf.bfloat16, embedding, (1, 1, 4, 16))
        compiled = tf.function(embedding, autograph=False)
        compiled(*given).numpy()
        with tensorflow_wgpu.profile() as profile:
            compiled(*given).numpy()
    rows = [row for device in profile.devices for row in device.rows]
    dispatches = {row.name: row.count for row in rows if "Memcpy" not in row.name}
    assert sum(dispatches.values()) == 1, dispatches


@pytest.mark.parametrize("embedding", EMBEDDINGS[:3], ids=NAMES[:3])
def test_rotary_embeddings_of_an_unknown_batch(rng, embedding):
    x, cos, sin = operands(rng, tf.float32, embedding)
    shapes = ([None, *x.shape[1:]], cos.shape, sin.shape)
    signature = [tf.TensorSpec(shape) for shape in shapes]
    with tf.device(CPU):
        want = embedding(x, cos, sin).numpy()
    with tf.device(WGPU):
        compiled = tf.function(embedding, input_signature=signature, autograph=False)
        got, nodes = graphs.optimized(compiled, x, cos, sin)
        assert_close(got.numpy(), want)
        # Another batch, and none.
        assert_close(compiled(x[:1], cos, sin).numpy(), want[:1])
        assert compiled(x[:0], cos, sin).shape == [0, 5, 4, 10]
    found = graphs.ops(nodes)
    assert (found[OP], found["Split"], found["Pack"], found["ConcatV2"]) == (1, 0, 0, 0), found


def test_rotary_embeddings_in_a_loop(rng):
    given = operands(rng, tf.float32)

    def looped(x, cos, sin):
        def step(i, y):
            return i + 1, rotated(stacked)(y, cos, sin) + rotated(sliced)(y, sin, cos)

        return tf.while_loop(lambda i, _: i < 4, step, [0, x])[1]

    with tf.device(CPU):
        want = looped(*given)
    with tf.device(WGPU):
        got, nodes = graphs.optimized(tf.function(looped), *map(tf.identity, given))
    assert_close(got.numpy(), want.numpy(), 1e-4, 1e-5)
    found = graphs.ops(nodes)
    assert found[OP] >= 2, found
    assert not [op for op in MOVES if found[op]], found
