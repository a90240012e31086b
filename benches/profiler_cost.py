"""What profiling costs: training steps of ResNet50 and small eager ops, with a session and without,
in turn. Prints medians and their ratio.

    python benches/profiler_cost.py [--image 64] [--batch 2] [--rounds 7]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
import tensorflow_wgpu


def timed(run: Callable[[], None]) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(name: str, run: Callable[[], None], rounds: int, repeats: int) -> None:
    """Times a run alone and within a session. The session's beginning and end are not counted."""
    run()
    run()
    alone: list[float] = []
    within: list[float] = []
    for _ in range(rounds):
        alone.append(statistics.median(timed(run) for _ in range(repeats)))
        with tensorflow_wgpu.profile() as profile:
            within.append(statistics.median(timed(run) for _ in range(repeats)))
    off, on = statistics.median(alone), statistics.median(within)
    ratios = sorted(b / a for a, b in zip(alone, within))
    print(
        f"{name}: {off * 1e3:.3f} ms alone, {on * 1e3:.3f} ms profiled; ratio "
        f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}); "
        f"{profile.devices[0].dispatches} dispatches in {repeats} runs"
    )


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    adapter = tf.config.experimental.get_device_details(tf.config.list_physical_devices("WGPU")[0])
    print(adapter)
    keras.utils.set_random_seed(1)
    model = keras.applications.ResNet50(
        weights=None, input_shape=(options.image, options.image, 3), classes=10
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(options.batch, options.image, options.image, 3)).astype("float32")
    y = rng.integers(0, 10, options.batch)
    compare("ResNet50, a training step", lambda: model.train_on_batch(x, y), options.rounds, 3)
    with tf.device("WGPU:0"):
        a = tf.ones([64])

        def adds() -> None:
            b = a
            for _ in range(1000):
                b = tf.raw_ops.AddV2(x=b, y=a)
            b.numpy()

        compare("1,000 eager adds of 64 floats", adds, options.rounds, 3)


if __name__ == "__main__":
    main()
