"""The steps that `benches/host` measures, and the process that measures them."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

#: The number of blocks into which a case's time is cut; the medians of the blocks count.
BLOCKS = 10


class Figures(NamedTuple):
    """Figures of a step: seconds of the processors in the thread that calls it, in TensorFlow's
    threads and in the plug-in's; seconds of the wall clock; dispatches.
    """

    caller: float
    executor: float
    plugin: float
    wall: float
    dispatches: float

    @property
    def cpu(self) -> float:
        """Seconds of all processors."""
        return self.caller + self.executor + self.plugin


class Case(NamedTuple):
    """A step: its device, and the function that makes it."""

    about: str
    make: Callable[[], Callable[[], object]]
    device: str = "WGPU:0"


def training(model: object, shape: tuple[int, ...], classes: int = 10) -> Callable[[], object]:
    """A training step of a Keras model with Adam, on one batch."""
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(1)
    x = tf.constant(rng.uniform(size=shape).astype("float32"))
    y = tf.constant(rng.integers(0, classes, shape[0]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam()
    model(x)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    return lambda: step(x, y)


def mlp() -> Callable[[], object]:
    """Ten dense layers."""
    from keras import Sequential, layers

    hidden = [layers.Dense(64, activation="relu") for _ in range(9)]
    return training(Sequential([*hidden, layers.Dense(10)]), (32, 64))


def transformer() -> Callable[[], object]:
    """Four encoder layers."""
    from keras import Input, Model, layers

    x = tokens = Input((32, 64))
    for _ in range(4):
        attended = layers.MultiHeadAttention(4, 16)(x, x)
        x = layers.LayerNormalization()(x + attended)
        hidden = layers.Dense(128, activation="gelu")(x)
        x = layers.LayerNormalization()(x + layers.Dense(64)(hidden))
    pooled = layers.GlobalAveragePooling1D()(x)
    return training(Model(tokens, layers.Dense(10)(pooled)), (4, 32, 64))


def convolutions() -> Callable[[], object]:
    """Eight blocks of a convolution, a norm and an activation."""
    from keras import Sequential, layers

    parts: list[object] = []
    for k in range(8):
        filters = 16 << k // 3
        parts += [layers.Conv2D(filters, 3, strides=1 + (k % 3 == 2), padding="same")]
        parts += [layers.BatchNormalization(), layers.ReLU()]
    parts += [layers.GlobalAveragePooling2D(), layers.Dense(10)]
    return training(Sequential(parts), (8, 32, 32, 3))


def lstm() -> Callable[[], object]:
    """One LSTM over 32 steps."""
    from keras import Sequential, layers

    return training(Sequential([layers.LSTM(64), layers.Dense(10)]), (16, 32, 32))


def mobilenet() -> Callable[[], object]:
    """MobileNetV2 on small images."""
    from keras.applications import MobileNetV2

    model = MobileNetV2((32, 32, 3), weights=None, classes=10, classifier_activation=None)
    return training(model, (4, 32, 32, 3))


def resnet() -> Callable[[], object]:
    """ResNet50 on small images."""
    from keras.applications import ResNet50

    model = ResNet50(input_shape=(32, 32, 3), weights=None, classes=10, classifier_activation=None)
    return training(model, (4, 32, 32, 3))


def adds() -> Callable[[], object]:
    """Additions in eager mode."""
    import tensorflow as tf

    a = tf.ones([16])
    return lambda: [tf.add(a, a) for _ in range(1000)][-1]


def sums() -> Callable[[], object]:
    """Sums in eager mode."""
    import tensorflow as tf

    a = tf.ones([16, 16])
    axis = tf.constant(1)
    return lambda: [tf.raw_ops.Sum(input=a, axis=axis) for _ in range(1000)][-1]


CASES = {
    "mlp": Case("MLP of ten layers, Adam", mlp),
    "mlp-cpu": Case("the same on TensorFlow's CPU", mlp, "CPU:0"),
    "transformer": Case("transformer of four layers, Adam", transformer),
    "convolutions": Case("eight convolutional blocks, Adam", convolutions),
    "lstm": Case("LSTM of 32 steps, Adam", lstm),
    "mobilenet": Case("MobileNetV2, Adam", mobilenet),
    "resnet": Case("ResNet50, Adam", resnet),
    "adds": Case("1,000 eager additions", adds),
    "sums": Case("1,000 eager sums of rows", sums),
}


def thread_seconds() -> list[float]:
    """Seconds that the processors spent so far: in the calling thread, in other threads, and in
    the plug-in's threads. Linux counts them in nanoseconds.
    """
    caller, sums = str(threading.get_native_id()), [0.0, 0.0, 0.0]
    for thread in Path("/proc/self/task").iterdir():
        try:
            name = (thread / "comm").read_text()
            spent = int((thread / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue
        sums[0 if thread.name == caller else 2 if name.startswith("wgpu-") else 1] += spent / 1e9
    return sums


def measure(case: Case, seconds: float) -> Figures:
    """Measures a step after some to warm up."""
    import tensorflow as tf
    import tensorflow_wgpu

    def timed(count: int) -> list[float]:
        """Seconds of threads and of the wall clock for a step, of `count` steps."""
        before, wall = thread_seconds(), time.perf_counter()
        for _ in range(count):
            last = step()
        # A read-back waits for all of them.
        last.numpy()
        after = [*thread_seconds(), time.perf_counter()]
        return [(a - b) / count for a, b in zip(after, [*before, wall], strict=True)]

    def dispatches() -> int:
        return sum(d["dispatches"] for d in tensorflow_wgpu.statistics().values())

    with tf.device(case.device):
        step = case.make()
        timed(3)
        per_block = seconds / BLOCKS
        count = max(1, round(per_block / timed(3)[-1]))
        timed(count)
        before = dispatches()
        blocks = [timed(count) for _ in range(BLOCKS)]
        done = (dispatches() - before) / (count * BLOCKS)
    return Figures(*(statistics.median(values) for values in zip(*blocks, strict=True)), done)


def main() -> int:
    """Measures the cases and prints them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    options = parser.parse_args()
    found = {name: measure(CASES[name], options.seconds)._asdict() for name in options.cases}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
