#!/usr/bin/env python3
"""Training steps of networks as tables for RESULTS.md.

    make install
    .venv/bin/python benches/steps.py barriers     # the ten networks of benches/peers, small
    .venv/bin/python benches/steps.py memory       # ResNet50, BERT-base, a block like Llama's
    .venv/bin/python benches/steps.py counts --before OTHER/.venv/bin/python

`barriers` counts what a step enqueues: dispatches, the barriers between them by wgpu's own rule,
and those that remain where the recorder follows which parts of memory dispatches write
(`TF_WGPU_BARRIERS=data`). Both are counted in the same step, by the rule of wgpu alone.

`memory` tells the most memory of a process at any time, less what it had before the network was
made. On the device that is what its buffers took, and beside them what the whole process grew by;
on TensorFlow's CPU there is the latter alone. A step is forward, backward and Adam's update, in a
tf.function. Each figure is of a process of its own, after two steps.

`counts` has the ten networks and the steps of benches/optimizer.py: dispatches, bytes and barriers
of a step, and the pipelines of the whole process. With `--before` each cell also has the figure of
an earlier build, which is installed in the environment of that Python, in front.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "peers"))
from networks import NETWORKS, Network, Sizes, application, bert, images, inputs_of

#: Steps after which everything is compiled, and the optimizer's slots exist.
WARM = 2


def llama_block(sizes: Sizes) -> Any:
    """A block of a decoder like Llama on whole sequences; four heads share keys and values."""
    import keras
    from keras import layers

    def linear(x: Any, width: int) -> Any:
        return layers.Dense(width, use_bias=False)(x)

    x = inputs = keras.Input((sizes.length, sizes.width), sizes.batch)
    y = layers.RMSNormalization(epsilon=1e-5)(x)
    each, shared = sizes.width // sizes.heads, sizes.heads // 4
    attention = layers.GroupQueryAttention(each, sizes.heads, shared, use_bias=False)
    x = x + attention(y, y, use_causal_mask=True)
    y = layers.RMSNormalization(epsilon=1e-5)(x)
    hidden = sizes.width * 11 // 4
    gated = keras.ops.silu(linear(y, hidden)) * linear(y, hidden)
    return keras.Model(inputs, x + linear(gated, sizes.width))


def row(key: str, title: str, make: Callable[[Sizes], Any], sizes: Sizes) -> Network:
    """A row whose sizes are the same on every adapter."""
    return Network(key, title, make, sizes, sizes)


MEMORY = [
    row("resnet50", "ResNet50", application("ResNet50"), images(2, 224)),
    row(
        "bert",
        "BERT-base",
        bert,
        Sizes("1×128 words, 12 layers", 1, 128, 12, 768, 12, 30522),
    ),
    row(
        "llama",
        "Llama's block",
        llama_block,
        Sizes("2×256 positions, width 1024", 2, 256, 1, 1024, 16),
    ),
]
TABLES = {"barriers": NETWORKS, "memory": MEMORY, "counts": NETWORKS}
#: The counts of a step that `counts` tells, and the unit of each.
COUNTS = {"dispatches": 1, "bytes": 1e6, "barriers": 1, "barriers_needed": 1}
#: How the keys of steps of benches/optimizer.py begin.
WORKLOAD = "optimizer/"


def resident(name: str) -> int:
    """A figure of the process's memory in bytes: `VmRSS` now, `VmHWM` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) << 10


def training_step(made: Network, device: str) -> Callable[[], None]:
    """A step of a network on a device, which is over when the call returns."""
    import keras
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(1)
    with tf.device(device):
        model = made.make(made.small)
        arrays = [
            rng.integers(0, wanted.below, wanted.shape, "int32")
            if wanted.below
            else rng.normal(size=wanted.shape).astype("float32")
            for wanted in inputs_of(model)
        ]
        inputs = [tf.constant(array) for array in arrays]
        optimizer = keras.optimizers.Adam(1e-4)
        optimizer.build(model.trainable_variables)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            results = model(inputs if len(inputs) > 1 else inputs[0], training=True)
            first = results[0] if isinstance(results, list) else results
            loss = tf.reduce_mean(tf.square(first))
        # Weights of other results, such as BERT's pooled one, have no gradient.
        weights = model.trainable_variables
        gradients = tape.gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, weights))
        return loss

    def run() -> None:
        with tf.device(device):
            assert np.isfinite(step().numpy())

    return run


def step_of(what: str, key: str, device: str) -> Callable[[], None]:
    """The step of a row."""
    if not key.startswith(WORKLOAD):
        return training_step(next(made for made in TABLES[what] if made.key == key), device)
    import tensorflow as tf

    import optimizer

    with tf.device(device):
        step = tf.function(optimizer.WORKLOADS[key.removeprefix(WORKLOAD)]())

    def run() -> None:
        with tf.device(device):
            optimizer.wait(step())

    return run


def measured(what: str, key: str, device: str) -> dict[str, int]:
    """The figures of a network in this process."""
    import tensorflow as tf

    on_wgpu = device.startswith("WGPU")
    with tf.device(device):
        tf.constant(1.0).numpy()
    before = resident("VmRSS")
    step = step_of(what, key, device)
    for _ in range(WARM):
        step()
    found = {"grown": resident("VmHWM") - before}
    if on_wgpu and what in ("barriers", "counts"):
        from tensorflow_wgpu._library import statistics

        first = statistics()[device]
        step()
        then = statistics()[device]
        found |= {name: then[name] - first[name] for name in COUNTS}
        found["pipelines"] = then["pipelines"]
    elif on_wgpu:
        info = tf.config.experimental.get_memory_info(device)
        found |= {"peak": info["peak"], "held": info["current"]}
    return found


def asked(what: str, key: str, device: str, python: str = sys.executable) -> dict[str, int] | None:
    """The figures of a network in a process of its own; None if it fails."""
    command = [python, __file__, what, "--own", key, device]
    variables = {**os.environ}
    if not device.startswith("WGPU"):
        variables["TF_WGPU_VISIBLE_DEVICES"] = ""
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        print(f"{key} on {device}: ended with {done.returncode}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def barriers(rows: list[Network]) -> list[str]:
    """The table of barriers."""
    out = [
        "| A training step of | Dispatches | Barriers by wgpu | Barriers that data needs | |",
        "|---|---|---|---|---|",
    ]
    for made in rows:
        if told := asked("barriers", made.key, "WGPU:0"):
            before, now = told["barriers"], told["barriers_needed"]
            cells = (told["dispatches"], before, now, f"−{100 * (before - now) / before:.0f} %")
            out.append(f"| {made.title}, {made.small.title} | {' | '.join(map(str, cells))} |")
    return out


def memory(rows: list[Network]) -> list[str]:
    """The table of memory, in megabytes."""
    out = [
        "| A training step of, MB | Buffers at most | Between steps | Our process "
        "| TensorFlow's CPU |",
        "|---|---|---|---|---|",
    ]
    for made in rows:
        ours, cpu = (asked("memory", made.key, device) for device in ("WGPU:0", "CPU:0"))
        told = [(ours or {}).get(name) for name in ("peak", "held", "grown")]
        told.append((cpu or {}).get("grown"))
        cells = ("" if x is None else f"{x / 1e6:,.0f}" for x in told)
        out.append(f"| {made.title}, {made.small.title} | {' | '.join(cells)} |")
    return out


def counts(rows: list[Network], before: str | None) -> list[str]:
    """The table of counts."""
    import optimizer

    titles = {made.key: f"{made.title}, {made.small.title}" for made in rows}
    if rows == NETWORKS:
        for name, make in optimizer.WORKLOADS.items():
            titles[WORKLOAD + name] = (make.__doc__ or name).splitlines()[0].rstrip(".")
    out = [
        "| Step | Dispatches | MB | Barriers by wgpu | Barriers that data needs | Pipelines |",
        "|---|---|---|---|---|---|",
    ]
    pythons = [before, sys.executable] if before else [sys.executable]
    for key, title in titles.items():
        builds = [asked("counts", key, "WGPU:0", python) for python in pythons]
        cells = (
            " → ".join(f"{build[name] / unit:,.0f}" if build else "failed" for build in builds)
            for name, unit in {**COUNTS, "pipelines": 1}.items()
        )
        out.append(f"| {title} | {' | '.join(cells)} |")
        print(out[-1], file=sys.stderr)
    return out


def main() -> None:
    """Prints a table, or the figures of one network as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("what", choices=TABLES)
    parser.add_argument("--only", nargs="+", metavar="KEY", help="some of the networks")
    parser.add_argument("--before", metavar="PYTHON", help="counts: the Python of an earlier build")
    parser.add_argument("--own", nargs=2, metavar=("KEY", "DEVICE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own:
        print(json.dumps(measured(options.what, *options.own)))
        return
    rows = [made for made in TABLES[options.what] if made.key in (options.only or made.key)]
    tables = {
        "barriers": barriers,
        "memory": memory,
        "counts": lambda rows: counts(rows, options.before),
    }
    print("\n".join(tables[options.what](rows)))


if __name__ == "__main__":
    main()
