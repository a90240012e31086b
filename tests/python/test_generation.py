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

LAYERS, HEADS, WIDTH, VOCABULARY, BATCH = 3, 4, 8, 40, 2
HIDDEN = HEADS * WIDTH


def weights(key_heads):
    """The weights of each layer, and the embedding."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(0, 0.3, shape).astype("float32")  # noqa: E731
    projected = HIDDEN + 2 * key_heads * WIDTH
    layers = [[draw(HIDDEN, projected), draw(HIDDEN, HIDDEN)] for _ in range(LAYERS)]
    return layers, draw(VOCABULARY, HIDDEN)


def plain(query, key, value, filled):
    """Attention with as many heads of keys as of queries."""
    scores = ops.einsum("bquh,bkuh->buqk", query, key) / WIDTH**0.5
    scores = ops.where(filled, scores, -1e9)
    return ops.einsum("buqk,bkuh->bquh", ops.softmax(scores), value)


def grouped(query, key, value, filled, soft_cap=None):
    """Attention as Gemma has it: a group of heads shares a head of the keys."""
    query *= WIDTH**-0.5
    heads = key.shape[2]
    query = ops.reshape(query, (*query.shape[:2], heads, HEADS // heads, WIDTH))
    scores = ops.einsum("btkgh,bskh->bkgts", query, key)
    if soft_cap is not None:
        scores = ops.multiply(ops.tanh(ops.divide(scores, soft_cap)), soft_cap)
    mask = ops.broadcast_to(filled[None], (BATCH, *filled.shape))
    attended = keras.layers.Softmax(dtype="float32")(scores, mask=mask[:, None, None, :, :])
    y = ops.einsum("bkgts,bskh->btkgh", ops.cast(attended, scores.dtype), value)
    y = ops.reshape(y, (BATCH, -1, HEADS, WIDTH))
    unseen = ops.all(ops.equal(mask, 0), axis=-1, keepdims=True)[..., None]
    return ops.where(unseen, ops.zeros_like(y), y)


def capped(query, key, value, filled):
    """The same with scores that a bound limits, as Gemma 2 has it."""
    return grouped(query, key, value, filled, soft_cap=1.5)


# Each form of attention, and its number of heads of the keys.
FORMS = {plain: HEADS, grouped: 2, capped: 1}


def updated(cache, start, rows, allowed):
    """The cache with new rows. KerasHub's Gemma keeps the old ones where `allowed` is false."""
    if allowed is not None:
        old = ops.slice(cache, start, rows.shape)
        rows = ops.where(allowed[:, :, None, None], rows, old)
    return ops.slice_update(cache, start, rows)


def layer(x, cache, index, projections, attention, allowed):
    """Attention over a cache, and the updated cache."""
    key_heads = cache.shape[-2]
    ends = [HIDDEN, HIDDEN + key_heads * WIDTH]
    parts = ops.split(ops.matmul(x, projections[0]), ends, axis=-1)
    heads = (HEADS, key_heads, key_heads)
    query, key, value = (
        ops.reshape(p, (BATCH, x.shape[1], n, WIDTH)) for p, n in zip(parts, heads, strict=True)
    )
    start = [0, index, 0, 0]
    key = updated(cache[:, 0, ...], start, key, allowed)
    value = updated(cache[:, 1, ...], start, value, allowed)
    # KerasHub compares positions as floats.
    rows = ops.arange(query.shape[1], dtype="float32") + ops.cast(index, "float32")
    filled = rows[:, None] >= ops.arange(key.shape[1], dtype="float32")
    y = attention(query, key, value, filled)
    y = ops.matmul(ops.reshape(y, (BATCH, x.shape[1], HIDDEN)), projections[1])
    return x + y, ops.stack((key, value), axis=1)


def model(tokens, cache, index, layers, embedding, attention, allowed=None):
    """The scores of the next tokens, and the updated cache of all layers."""
    x, caches = ops.take(embedding, tokens, axis=0), []
    for number, projections in enumerate(layers):
        x, next_cache = layer(x, cache[:, number, ...], index, projections, attention, allowed)
        caches.append(next_cache)
    return ops.matmul(x, ops.transpose(embedding)), ops.stack(caches, axis=1)


def generate(tokens, mask, begin, layers, embedding, attention):
    """The text and the cache after tokens were chosen for all places from `begin` on where `mask`
    is false.
    """
    length = tokens.shape[1]
    cache = ops.zeros((BATCH, LAYERS, 2, length, FORMS[attention], WIDTH))
    _, cache = model(tokens, cache, 0, layers, embedding, attention)

    def step(tokens, cache, index):
        last = ops.slice(tokens, [0, index - 1], [BATCH, 1])
        allowed = None
        if attention is not plain:
            allowed = ops.logical_not(ops.slice(mask, [0, index - 1], [BATCH, 1]))
        scores, cache = model(last, cache, index - 1, layers, embedding, attention, allowed)
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


def call(device, length, with_cache=False, attention=plain):
    """The function on a device, and its inputs."""
    layers, embedding = weights(FORMS[attention])
    with tf.device(device):
        variables = [[keras.Variable(w) for w in layer] for layer in layers]
        table = keras.Variable(embedding)
        mask = tf.constant(np.arange(length) < [[3], [5]])

    @tf.function
    def function(tokens, begin):
        with tf.device(device):
            results = generate(tokens, mask, begin, variables, table, attention)
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


@pytest.mark.parametrize("attention", FORMS)
def test_attention_reads_the_cache_as_it_is(attention):
    function, tokens = call(CPU, 12, attention=attention)
    want = function(tokens, tf.constant(3))
    function, tokens = call(WGPU, 12, attention=attention)
    got, nodes = optimized(function, tokens, tf.constant(3))
    np.testing.assert_array_equal(got.numpy(), want.numpy())
    # Of the given text's last layer, the loop needs only keys and values.
    assert sum(node.op == "_WgpuFusedAttention" for node in nodes) == 2 * LAYERS - 1
    in_loop = [node.op for node in nodes if "while/body" in node.name]
    assert "Transpose" not in in_loop
    # Masked rows are written where they belong, without a copy of the old ones.
    rows = 0 if attention is plain else 2 * LAYERS
    assert in_loop.count("_WgpuMaskedUpdateSlice") == rows
    assert in_loop.count("XlaDynamicUpdateSlice") == 2 * LAYERS + 1 - rows


def test_loops_without_steps_and_with_one_step():
    for begin in (11, 12):
        function, tokens = call(CPU, 12, True)
        want = tf.nest.flatten(function(tokens, tf.constant(begin)))
        function, tokens = call(WGPU, 12, True)
        for got, wanted in zip(
            tf.nest.flatten(function(tokens, tf.constant(begin))), want, strict=True
        ):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=2e-5, atol=2e-5)


def counted(length, attention):
    """What 16 tokens cost."""
    function, tokens = call(WGPU, length, attention=attention)
    keys = ("dispatches", "copies", "downloads", "uploaded")

    def run(begin):
        before = tensorflow_wgpu.statistics()
        function(tokens, tf.constant(begin)).numpy()
        after = tensorflow_wgpu.statistics()
        devices = [name for name in after if name in before]
        return {key: sum(after[d][key] - before[d][key] for d in devices) for key in keys}

    # The first iterations of the first calls find out which tensors are overwritten in place.
    for _ in range(3):
        run(length - 32)
    long, short = run(length - 32), run(length - 16)
    return {key: long[key] - short[key] for key in keys}


def test_regions_copy_no_cache(monkeypatch):
    monkeypatch.setenv("TF_WGPU_CAPTURE", "on")
    assert counted(48, plain)["copies"] == 0


@pytest.mark.parametrize("attention", FORMS)
def test_a_token_costs_the_same_however_long_the_cache_is(attention):
    short, long = counted(48, attention), counted(400, attention)
    assert short["downloads"] == long["downloads"] == 0
    assert short["copies"] == long["copies"] == 0
    assert short["dispatches"] == long["dispatches"]
    assert short["uploaded"] == long["uploaded"] < 16 * 100
