"""The bytes that the programs of a generated token touch: the packed weights once, the caches of
keys and values, and little else.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import CPU, WGPU
from tensorflow_wgpu._library import first_device, statistics

LAYERS, WIDTH, HIDDEN, VOCABULARY, LENGTH = 2, 256, 1024, 2048, 48
HEADS, HEAD = 4, 64
#: How the models project queries: KerasHub's Llama and its Gemma.
QUERIES = {"llama": "btd,dnh->btnh", "gemma": "btd,ndh->btnh"}


class Decoder(keras.Model):
    """The layers of a language model."""

    def __init__(self, form: str) -> None:
        super().__init__(dtype="bfloat16")
        policy = {"dtype": "bfloat16"}

        def dense(width, **more):
            return keras.layers.Dense(width, use_bias=False, **policy, **more)

        def heads(count, form):
            return keras.layers.EinsumDense(form, (None, count, HEAD), **policy)

        self.embedding = keras.layers.ReversibleEmbedding(VOCABULARY, WIDTH, **policy)
        self.blocks = []
        for number in range(LAYERS):
            block = {
                "query": heads(HEADS, QUERIES[form]),
                "key": heads(HEADS, QUERIES["llama"]),
                "value": heads(HEADS, QUERIES["llama"]),
                "output": dense(WIDTH),
                "gate": dense(HIDDEN, activation="silu"),
                "up": dense(HIDDEN),
                "down": dense(WIDTH),
                "norm": keras.layers.RMSNormalization(**policy),
                "norm_2": keras.layers.RMSNormalization(**policy),
            }
            for name, layer in block.items():
                setattr(self, f"block_{number}_{name}", layer)
            self.blocks.append(block)

    def call(self, tokens, cache, index):
        """The scores of the next tokens, and the updated caches of all layers."""
        x, updated = self.embedding(tokens), []
        for number, block in enumerate(self.blocks):
            y = block["norm"](x)
            query = block["query"](y) / HEAD**0.5
            start, own = [0, index, 0, 0], cache[:, number, ...]
            key = ops.slice_update(own[:, 0, ...], start, block["key"](y))
            value = ops.slice_update(own[:, 1, ...], start, block["value"](y))
            scores = ops.einsum("bqnh,bsnh->bnqs", query, key)
            rows = ops.arange(tokens.shape[1], dtype="float32") + ops.cast(index, "float32")
            filled = rows[:, None] >= ops.arange(LENGTH, dtype="float32")
            scores = ops.softmax(ops.where(filled, ops.cast(scores, "float32"), -1e9))
            y = ops.einsum("bnqs,bsnh->bqnh", ops.cast(scores, "bfloat16"), value)
            x = x + block["output"](ops.reshape(y, (1, -1, HEADS * HEAD)))
            y = block["norm_2"](x)
            x = x + block["down"](block["gate"](y) * block["up"](y))
            updated.append(ops.stack((key, value), axis=1))
        return self.embedding(x, reverse=True), ops.stack(updated, axis=1)


def made(form: str, mode: str | None) -> Decoder:
    keras.utils.set_random_seed(1)
    model = Decoder(form)
    cache = ops.zeros((1, LAYERS, 2, LENGTH, HEADS, HEAD), dtype="bfloat16")
    model(ops.ones((1, 2), dtype="int32"), cache, index=0)
    if mode:
        model.quantize(mode)
    return model


def generator(model: Decoder, device: str):
    """The text after tokens were chosen for all places from `begin` on."""

    @tf.function
    def generate(tokens, begin):
        with tf.device(device):
            cache = ops.zeros((1, LAYERS, 2, LENGTH, HEADS, HEAD), dtype="bfloat16")
            _, cache = model(tokens, cache, index=0)

            def step(tokens, cache, index):
                last = ops.slice(tokens, [0, index - 1], [1, 1])
                scores, cache = model(last, cache, index=index - 1)
                chosen = ops.cast(ops.argmax(scores[:, 0], axis=-1), "int32")
                return ops.slice_update(tokens, [0, index], chosen[:, None]), cache, index + 1

            going_on = lambda *_: True  # noqa: E731
            steps = LENGTH - begin
            carried = (tokens, cache, begin)
            return ops.while_loop(going_on, step, carried, maximum_iterations=steps)[0]

    return generate


def tokens() -> tf.Tensor:
    return tf.constant(np.random.default_rng(1).integers(0, VOCABULARY, (1, LENGTH)), tf.int32)


def bytes_of(model: Decoder) -> int:
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in model.variables)


@pytest.mark.parametrize(
    ("form", "mode"),
    [(form, mode) for form in QUERIES for mode in (None, "int8", "int4")],
)
def test_a_token_reads_packed_weights_once(form, mode):
    with tf.device(WGPU):
        model = made(form, mode)
        generate = generator(model, WGPU)
        text, device = tokens(), first_device()

    def run(begin: int) -> int:
        before = statistics()[device]["bytes"]
        generate(text, tf.constant(begin)).numpy()
        return statistics()[device]["bytes"] - before

    run(LENGTH - 2)
    each = (run(LENGTH - 34) - run(LENGTH - 2)) / 32
    caches = 2 * 2 * LAYERS * LENGTH * HEADS * HEAD
    assert bytes_of(model) < each < 1.1 * bytes_of(model) + caches, (each, bytes_of(model), caches)
    if mode is None:
        with tf.device(CPU):
            want = generator(made(form, mode), CPU)(text, tf.constant(LENGTH - 34))
        # Sums of another order round otherwise in bfloat16, and two scores may be equal.
        got = generate(text, tf.constant(LENGTH - 34))
        assert np.mean((got.numpy() == want.numpy())[:, LENGTH - 34 :]) > 0.8
