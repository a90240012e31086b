"""Generation of text as KerasHub writes it: a loop carries the text and a cache of the keys and
values of all layers. A step costs the same however long the cache is, and never waits for the
device.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from graphs import optimized
from keras import ops
from support import CPU, WGPU

LAYERS, HEADS, WIDTH, VOCABULARY, BATCH = 2, 2, 8, 40, 2


def weights():
    """The weights of each layer, and the embedding."""
    rng = np.random.default_rng(0)
    hidden = HEADS * WIDTH
    draw = lambda *shape: rng.normal(0, 0.4, shape).astype("float32")  # noqa: E731
    layers = [[draw(hidden, 3 * hidden), draw(hidden, hidden)] for _ in range(LAYERS)]
    return layers, draw(VOCABULARY, hidden)


def layer(x, cache, index, projections):
    """Attention over a cache, and the updated cache."""
    parts = ops.split(ops.matmul(x, projections[0]), 3, axis=-1)
    query, key, value = (ops.reshape(p, (BATCH, -1, HEADS, WIDTH)) for p in parts)
    start = [0, index, 0, 0]
    key = ops.slice_update(cache[:, 0, ...], start, key)
    value = ops.slice_update(cache[:, 1, ...], start, value)
    scores = ops.einsum("bquh,bkuh->buqk", query, key) / WIDTH**0.5
    # KerasHub compares positions as floats.
    rows = ops.arange(query.shape[1], dtype="float32") + ops.cast(index, "float32")
    filled = rows[:, None] >= ops.arange(key.shape[1], dtype="float32")
    scores = ops.where(filled, scores, -1e9)
    y = ops.einsum("buqk,bkuh->bquh", ops.softmax(scores), value)
    y = ops.matmul(ops.reshape(y, (BATCH, -1, HEADS * WIDTH)), projections[1])
    return x + y, ops.stack((key, value), axis=1)


def model(tokens, cache, index, layers, embedding):
    """The scores of the next tokens, and the updated cache of all layers."""
    x, updated = ops.take(embedding, tokens, axis=0), []
    for number, projections in enumerate(layers):
        x, next_cache = layer(x, cache[:, number, ...], index, projections)
        updated.append(next_cache)
    return ops.matmul(x, ops.transpose(embedding)), ops.stack(updated, axis=1)


def generate(tokens, mask, begin, layers, embedding):
    """The text and the cache after tokens were chosen for all places from `begin` on where `mask`
    is false.
    """
    length = tokens.shape[1]
    cache = ops.zeros((BATCH, LAYERS, 2, length, HEADS, WIDTH))
    _, cache = model(tokens, cache, 0, layers, embedding)

    def step(tokens, cache, index):
        last = ops.slice(tokens, [0, index - 1], [BATCH, 1])
        scores, cache = model(last, cache, index - 1, layers, embedding)
        chosen = ops.argmax(ops.squeeze(scores, axis=1), axis=-1)
        chosen = ops.where(mask[:, index], tokens[:, index], ops.cast(chosen, tokens.dtype))
        return ops.slice_update(tokens, [0, index], chosen[:, None]), cache, index + 1

    going_on = lambda *_: True  # noqa: E731
    tokens, cache, _ = ops.while_loop(
        going_on, step, (tokens, cache, begin), maximum_iterations=length - begin
    )
    return tokens, cache


def text(length):
    rng = np.random.default_rng(1)
    return rng.integers(0, VOCABULARY, (BATCH, length)).astype("int32")


def call(device, length, with_cache=False):
    """The function on a device, and its inputs."""
    layers, embedding = weights()
    with tf.device(device):
        variables = [[keras.Variable(w) for w in layer] for layer in layers]
        table = keras.Variable(embedding)
        mask = tf.constant(np.arange(length) < [[3], [5]])

    @tf.function
    def function(tokens, begin):
        with tf.device(device):
            results = generate(tokens, mask, begin, variables, table)
            return results if with_cache else results[0]

    return function, tf.constant(text(length))


@pytest.mark.parametrize("with_cache", [False, True])
def test_tokens_and_cache_are_the_same_as_on_the_cpu(with_cache):
    function, tokens = call(CPU, 12, with_cache)
    want = tf.nest.flatten(function(tokens, tf.constant(3)))
    function, tokens = call(WGPU, 12, with_cache)
    results, nodes = optimized(function, tokens, tf.constant(3))
    for got, wanted in zip(tf.nest.flatten(results), want, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=2e-5, atol=2e-5)
    in_loop = [node for node in nodes if node.name.startswith("while/body")]
    stacks = [
        n for n in in_loop if n.op == "Pack" and n.attr["T"].type == tf.float32.as_datatype_enum
    ]
    assert not stacks


def test_loops_without_steps_and_with_one_step():
    for begin in (11, 12):
        function, tokens = call(CPU, 12, True)
        want = tf.nest.flatten(function(tokens, tf.constant(begin)))
        function, tokens = call(WGPU, 12, True)
        for got, wanted in zip(
            tf.nest.flatten(function(tokens, tf.constant(begin))), want, strict=True
        ):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=2e-5, atol=2e-5)


def counted(length):
    """What 16 tokens cost."""
    function, tokens = call(WGPU, length)
    keys = ("dispatches", "copies", "downloads", "uploaded")

    def run(begin):
        before = tensorflow_wgpu.statistics()
        function(tokens, tf.constant(begin)).numpy()
        after = tensorflow_wgpu.statistics()
        devices = [name for name in after if name in before]
        return {key: sum(after[d][key] - before[d][key] for d in devices) for key in keys}

    run(length - 32)
    long, short = run(length - 32), run(length - 16)
    return {key: long[key] - short[key] for key in keys}


def test_a_token_costs_the_same_however_long_the_cache_is():
    short, long = counted(48), counted(400)
    assert short["downloads"] == long["downloads"] == 0
    assert short["copies"] == long["copies"] == 0
    assert short["dispatches"] == long["dispatches"]
    assert short["uploaded"] == long["uploaded"] < 16 * 100
