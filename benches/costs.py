#!/usr/bin/env python3
"""costs NAME=PYTHON...: what an installed plug-in costs at start-up, at the first step and in
steady state, for several environments in turn, so that the ratios are of one run.

Each figure is the median of `--rounds` processes, in seconds of the wall clock and of processors.
Start-up is `import tensorflow` and the first op: with an empty cache directory, with that of an
earlier process, and without a device. The first step is that of a small convolutional network, with
an empty cache and with a full one. Steady state is a step of a dense network of ten layers, a step
of the convolutional one, and 1,000 additions in eager mode.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMPORT = """
import tensorflow as tf
with tf.device("WGPU:0" if tf.config.list_physical_devices("WGPU") else "CPU:0"):
    (tf.ones([2]) + 1.0).numpy()
"""

STEPS = """
import json
import time
import keras
import numpy as np
import tensorflow as tf

def timed(f, count):
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        f()
    return [(time.perf_counter() - start) / count, (time.process_time() - cpu) / count]

rng = np.random.default_rng(1)
keras.utils.set_random_seed(1)
with tf.device("WGPU:0"):
    layers = keras.layers
    conv = keras.Sequential(
        [layers.Conv2D(16, 3, activation="relu"), layers.BatchNormalization(),
         layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
         layers.Dense(10)]
    )
    dense = keras.Sequential([*(layers.Dense(64, activation="relu") for _ in range(10)),
                              layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    found = {}
    for name, model, shape in [("conv", conv, (16, 16, 16, 3)), ("dense", dense, (32, 64))]:
        model.compile("adam", loss)
        x = tf.constant(rng.uniform(size=shape).astype("float32"))
        y = tf.constant(rng.integers(0, 10, shape[0]))
        optimizer, variables = model.optimizer, model.trainable_variables

        @tf.function
        def step(x, y, model=model, optimizer=optimizer):
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            gradients = tape.gradient(value, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            return value

        model(x)
        optimizer.build(model.trainable_variables)
        found[name + " first"] = timed(lambda: step(x, y).numpy(), 1)
        timed(lambda: step(x, y).numpy(), 10)
        found[name] = timed(lambda: step(x, y).numpy(), 100)
    a = tf.ones([16])
    add = lambda: tf.add(a, a)
    for _ in range(100):
        add()
    found["adds"] = timed(lambda: [add() for _ in range(1000)][-1].numpy(), 5)
print("found", json.dumps(found))
"""


def run(python: str, code: str, cache: str, **settings: str) -> tuple[list[float], str]:
    """The wall-clock and processor seconds of a process, and its output."""
    environment = {**os.environ, "TF_WGPU_CACHE": cache, "TF_CPP_MIN_LOG_LEVEL": "2", **settings}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [python, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return [wall, cpu], done.stdout


def measure(python: str) -> dict[str, list[float]]:
    """Measures the figures of an environment once."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        found["import, empty cache"] = run(python, IMPORT, cache)[0]
        found["import, full cache"] = run(python, IMPORT, cache)[0]
        checked = {"TF_WGPU_CHECK": "on"}
        found["import, numbers checked"] = run(python, IMPORT, cache, **checked)[0]
        found["import, no device"] = run(python, IMPORT, cache, TF_WGPU_VISIBLE_DEVICES="-1")[0]
    with tempfile.TemporaryDirectory() as cache:
        for when in ("empty", "full"):
            output = run(python, STEPS, cache)[1]
            line = next(line for line in output.splitlines() if line.startswith("found "))
            steps = json.loads(line.removeprefix("found "))
            found[f"first step, convolutions, {when} cache"] = steps["conv first"]
            found[f"first step, dense, {when} cache"] = steps["dense first"]
        found["step, convolutions"] = steps["conv"]
        found["step, dense"] = steps["dense"]
        found["1,000 additions"] = steps["adds"]
    return found


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("environments", nargs="+", metavar="NAME=PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    environments = dict(e.split("=", 1) for e in options.environments)
    missing = [python for python in environments.values() if not Path(python).exists()]
    if missing:
        parser.error(f"there is no {missing[0]}")
    found = {name: [] for name in environments}
    for _ in range(options.rounds):
        for name, python in environments.items():
            found[name].append(measure(python))
    print("| Milliseconds: wall clock; processors | " + " | ".join(environments) + " |")
    print("|---|" + "---|" * len(environments))
    for what in found[next(iter(environments))][0]:
        cells = []
        for rounds in found.values():
            wall, cpu = (
                statistics.median(1e3 * figures[what][i] for figures in rounds) for i in (0, 1)
            )
            digits = 0 if wall >= 100 else 2
            cells.append(f"{wall:,.{digits}f}; {cpu:,.{digits}f}")
        print(f"| {what} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
