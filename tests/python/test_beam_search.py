"""Beam search as TensorFlow's official models write it: the texts and the caches of a loop become
longer with each iteration.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from support import CPU, WGPU

BATCH, BEAMS, WIDTH, VOCABULARY, STEPS = 4, 4, 8, 20, 6
END = 1


def flattened(x):
    """The first two axes as one, by sizes that the graph computes."""
    sizes = tf.shape(x)
    return tf.reshape(x, [sizes[0] * BEAMS, *(sizes[i] for i in range(2, len(x.shape)))])


def unflattened(x):
    """The first axis as two."""
    sizes = tf.shape(x)
    return tf.reshape(x, [BATCH, BEAMS, *(sizes[i] for i in range(1, len(x.shape)))])


def of_beams(x, beams):
    """The rows of these beams."""
    n = beams.shape[1]
    batch = tf.reshape(tf.range(BATCH * n) // n, [BATCH, n])
    return tf.gather_nd(x, tf.stack([batch, beams], axis=2))


class Decoder:
    """One layer of attention with random weights."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)

        def draw(*shape):
            return tf.Variable(rng.normal(0, 0.3, shape).astype("float32"))

        self.embedding = draw(VOCABULARY, WIDTH)
        self.query, self.key, self.value, self.output = (draw(WIDTH, WIDTH) for _ in range(4))
        self.scale = draw(WIDTH)

    def norm(self, x):
        """Rows of mean 0 and variance 1, scaled."""
        mean = tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(x, mean), -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-6) * self.scale

    def logits(self, text, keys, values):
        """The scores of the next tokens, and the longer caches."""
        x = self.norm(tf.gather(self.embedding, text)[:, -1:] * 2.0)
        keys = tf.concat([keys, tf.einsum("bld,de->ble", x, self.key)], 1)
        values = tf.concat([values, tf.einsum("bld,de->ble", x, self.value)], 1)
        query = tf.einsum("bld,de->ble", x, self.query)
        weights = tf.nn.softmax(tf.einsum("bld,bmd->blm", query, keys) * WIDTH**-0.5)
        attended = tf.einsum("blm,bmd->bld", weights, values)
        x = self.norm(x + tf.einsum("ble,ed->bld", attended, self.output))
        return tf.matmul(x[:, 0], self.embedding, transpose_b=True), keys, values

    def step(self, i, text, score, keys, values):
        """An iteration of the loop."""
        logits, keys, values = self.logits(*map(flattened, (text, keys, values)))
        chances = unflattened(logits)
        chances -= tf.reduce_logsumexp(chances, 2, keepdims=True)
        chances = tf.reshape(chances + score[:, :, tf.newaxis], [-1, BEAMS * VOCABULARY])
        best, found = tf.nn.top_k(chances, 2 * BEAMS)
        beams, tokens = found // VOCABULARY, found % VOCABULARY
        text = tf.concat([of_beams(text, beams), tokens[:, :, tf.newaxis]], 2)
        best -= 1e7 * tf.cast(tokens == END, tf.float32)
        _, alive = tf.nn.top_k(best, BEAMS)
        keys, values = (of_beams(unflattened(x), beams) for x in (keys, values))
        return i + 1, *(of_beams(x, alive) for x in (text, best, keys, values))

    def search(self):
        """The loop: the number of steps, the texts, their scores, and the caches."""
        empty = tf.zeros([BATCH, BEAMS, 0, WIDTH])
        # Equal beams would choose among equal scores.
        score = tf.tile(tf.constant([[0.0, -1.0, -2.0, -3.0]]), [BATCH, 1])
        start = [tf.constant(0), tf.zeros([BATCH, BEAMS, 1], tf.int32), score, empty, empty]
        cache = tf.TensorShape([BATCH, BEAMS, None, WIDTH])
        invariants = [[], [BATCH, BEAMS, None], [BATCH, BEAMS], cache, cache]
        return tf.while_loop(
            lambda i, *_: i < STEPS,
            self.step,
            start,
            shape_invariants=[tf.TensorShape(shape) for shape in invariants],
        )


def test_texts_that_become_longer_are_those_of_the_cpu():
    def found(device):
        with tf.device(device):
            return [x.numpy() for x in tf.function(Decoder().search)()]

    _, text, score, keys, values = found(WGPU)
    _, *want = found(CPU)
    assert text.shape == (BATCH, BEAMS, 1 + STEPS)
    assert keys.shape == (BATCH, BEAMS, STEPS, WIDTH)
    np.testing.assert_array_equal(text, want[0])
    for got, expected in zip((score, keys, values), want[1:], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
