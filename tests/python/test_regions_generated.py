"""Random training steps: the bits of losses and variables are the same with and without regions.

A seed chooses layers, types, an optimizer with its options, what else a step does, the sizes of the
batches, and what happens between the steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from regions import compare

FEATURES, CLASSES, STEPS = 6, 5, 10

OPTIMIZERS = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "Adagrad": {},
    "Adadelta": {},
    "Nadam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Lion": {},
    "Ftrl": {},
    "Lamb": {},
}
#: Options of optimizers, each of which a program may have.
OPTIONS = [
    {"clipnorm": 0.5},
    {"global_clipnorm": 0.5},
    {"clipvalue": 0.1},
    {"use_ema": True, "ema_momentum": 0.8, "ema_overwrite_frequency": 3},
    {"gradient_accumulation_steps": 2},
    {"weight_decay": 0.01},
]


def body(rng: random.Random, policy: str) -> list[layers.Layer]:
    """The hidden layers of a network."""
    found: list[layers.Layer] = []
    for k in range(rng.randint(1, 3)):
        activation = rng.choice(["relu", "tanh", "gelu", "swish", None])
        found.append(layers.Dense(rng.choice([4, 8, 17]), activation=activation, dtype=policy))
        found += rng.choice(
            [
                [],
                [layers.BatchNormalization(dtype=policy)],
                [layers.LayerNormalization(dtype=policy)],
                [layers.Dropout(0.3, seed=k, dtype=policy)],
                [layers.UnitNormalization(dtype=policy)],
            ]
        )
    return found


def network(rng: random.Random) -> keras.Sequential:
    """A small network on rows of features."""
    policy = rng.choice(["float32", "float32", "mixed_bfloat16", "mixed_float16"])
    before = rng.choice(
        [
            [],
            [layers.Reshape((FEATURES, 1)), layers.Conv1D(4, 3, dtype=policy), layers.Flatten()],
            [layers.Reshape((3, 2)), layers.GRU(5, dtype=policy)],
            [layers.Reshape((3, 2)), layers.LSTM(5, dtype=policy)],
        ]
    )
    return keras.Sequential([*before, *body(rng, policy), layers.Dense(CLASSES, dtype="float32")])


def optimizer(rng: random.Random) -> keras.optimizers.Optimizer:
    """An optimizer with some options."""
    name = rng.choice(list(OPTIMIZERS))
    options = dict(OPTIMIZERS[name]) if rng.random() < 0.5 else {}
    clips = 0
    for option in rng.sample(OPTIONS, rng.randint(0, 3)):
        is_clip = any("clip" in key for key in option)
        clips += is_clip
        # Keras takes one of them.
        if not is_clip or clips == 1:
            options |= option
    found = getattr(keras.optimizers, name)(0.01, **options)
    if rng.random() < 0.3:
        found = keras.optimizers.LossScaleOptimizer(
            found, initial_scale=2.0**10, dynamic_growth_steps=2
        )
    return found


class Extras:
    """What a step does beside the training."""

    def __init__(self, rng: random.Random, model: keras.Model) -> None:
        self.total = tf.Variable(0.0)
        self.counts = tf.Variable(tf.zeros([CLASSES]))
        self.average = tf.Variable(model.trainable_variables[0])
        self.weights = model.trainable_variables[0]
        self.metric = keras.metrics.SparseCategoricalAccuracy()
        self.chosen = {
            name
            for name in ("noise", "cond", "while", "sums", "scatter", "average", "metric", "assert")
            if rng.random() < 0.4
        }

    def before(self, x: tf.Tensor) -> tf.Tensor:
        """Changes the features."""
        if "noise" in self.chosen:
            x += 0.01 * tf.random.normal(tf.shape(x), seed=7)
        if "while" in self.chosen:
            for _ in tf.range(3):
                x = tf.tanh(x + tf.reduce_mean(x, axis=1, keepdims=True))
        return x

    def within(self, value: tf.Tensor) -> tf.Tensor:
        """Changes the loss."""
        if "cond" in self.chosen:
            return tf.cond(value > 1.5, lambda: 0.5 * value * value, lambda: tf.exp(value))
        return value

    def after(self, value: tf.Tensor, y: tf.Tensor, logits: tf.Tensor) -> None:
        """Changes variables behind the training."""
        if "assert" in self.chosen:
            tf.debugging.assert_less(value, 1e6)
        if "sums" in self.chosen:
            self.total.assign_add(value)
        if "scatter" in self.chosen:
            self.counts.scatter_add(tf.IndexedSlices(tf.ones_like(y, tf.float32), y))
        if "average" in self.chosen:
            self.average.assign(0.9 * self.average + 0.1 * self.weights)
        if "metric" in self.chosen:
            self.metric.update_state(y, logits)

    def variables(self) -> list[tf.Variable]:
        """The variables."""
        return [self.total, self.counts, self.average, *self.metric.variables]


def program(seed: int) -> Callable[[], Callable[[], list[tf.Tensor]]]:
    """Makes the steps of a seed anew, and returns their losses and variables."""

    def make() -> Callable[[], list[tf.Tensor]]:
        rng = random.Random(seed)
        keras.utils.set_random_seed(seed)
        values = np.random.default_rng(seed)
        model, chosen = network(rng), optimizer(rng)
        model(tf.zeros([1, FEATURES]))
        chosen.build(model.trainable_variables)
        extras = Extras(rng, model)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        signature = rng.choice(
            [
                None,
                [tf.TensorSpec([None, FEATURES]), tf.TensorSpec([None], tf.int64)],
            ]
        )
        rounds = rng.choice([1, 1, 2])

        @tf.function(input_signature=signature)
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            x = extras.before(x)
            for _ in range(rounds):
                with tf.GradientTape() as tape:
                    logits = model(x, training=True)
                    value = scaled = extras.within(loss(y, logits))
                    if isinstance(chosen, keras.optimizers.LossScaleOptimizer):
                        scaled = chosen.scale_loss(value)
                gradients = tape.gradient(scaled, model.trainable_variables)
                chosen.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
                extras.after(value, y, logits)
            return value

        batch, last = rng.choice([(4, 3), (8, 1), (5, 5), (3, 7)])
        between = rng.choice(["nothing", "hold", "rate", "reset"])

        def steps() -> list[tf.Tensor]:
            found, held = [], []
            for k in range(STEPS):
                size = last if k % 4 == 3 else batch
                x = values.normal(size=(size, FEATURES)).astype("float32")
                y = tf.constant(values.integers(0, CLASSES, size))
                # A read-back waits for the shaders, without which no step is recorded.
                found.append(tf.constant(step(tf.constant(x), y).numpy()))
                if between == "hold":
                    held += [tf.identity(v) for v in model.trainable_variables[: k % 3]]
                elif between == "rate":
                    inner = getattr(chosen, "inner_optimizer", chosen)
                    inner.learning_rate.assign(0.01 / (k + 1))
                elif between == "reset" and k % 3 == 2:
                    extras.weights.assign(0.5 * extras.weights)
            kept = [*model.variables, *chosen.variables, *extras.variables()]
            return [*found, *held, *(tf.constant(v.numpy()) for v in kept)]

        return steps

    return make


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seed", range(20))
def test_random_steps_have_the_same_bits(monkeypatch, seed):
    compare(monkeypatch, program(seed))
