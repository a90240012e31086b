"""Networks on one of TensorFlow's devices: `tensorflow_networks.py FOLDER WGPU:0`, or CPU:0, for
which the plug-in's devices are hidden. networks_export.py has filled the folder.

With `small` behind the device the networks are small ones; `first` tells how long the first and the
second step take, for which a process may be asked for one network only.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from networks import NETWORKS, forward, network
from rows import Run, difference, serve, tell

FOLDER, DEVICE, *HOW = Path(sys.argv[1]), *sys.argv[2:]
ON_WGPU = DEVICE.startswith("WGPU")
if not ON_WGPU:
    os.environ["TF_WGPU_VISIBLE_DEVICES"] = ""

try:
    import keras
    import numpy as np
    import tensorflow as tf
except ImportError:
    tell(refused="needs TensorFlow: python -m pip install tensorflow")
    raise SystemExit(0) from None

if not tf.config.list_physical_devices(DEVICE.partition(":")[0]):
    tell(refused=f"TensorFlow {tf.__version__} has no {DEVICE}: make install")
    raise SystemExit(0)

#: The plug-in's counters that a row reports for a step.
COUNTERS = ("dispatches", "bytes", "uploads", "downloads", "submissions")


def counters() -> dict[str, int]:
    """The counts of our device so far; empty for another device."""
    if not ON_WGPU:
        return {}
    from tensorflow_wgpu._library import statistics

    return statistics().get(DEVICE, {})


class Step:
    """A network's pass, with its inputs on the device."""

    def __init__(self, key: str) -> None:
        made, arrays = network(key), np.load(FOLDER / f"{key}.npz")
        count = {kind: sum(name[0] == kind for name in arrays.files) for kind in "wxy"}
        self.wanted = [arrays[f"y{i}"] for i in range(count["y"])]
        with tf.device(DEVICE):
            self.model = made.make(made.sizes("small" in HOW))
            self.model.set_weights([arrays[f"w{i}"] for i in range(count["w"])])
            self.inputs = [tf.constant(arrays[f"x{i}"]) for i in range(count["x"])]
            self.function = tf.function(forward(self.model))
            self.probe = tf.zeros([1])
        self.wait()

    def __call__(self, times: int = 1) -> list[tf.Tensor]:
        """The last of several results, when it is available."""
        with tf.device(DEVICE):
            for _ in range(times):
                results = self.function(*self.inputs)
        self.wait()
        return results

    def wait(self) -> None:
        """Waits for the device, whose work is done in order."""
        with tf.device(DEVICE):
            tf.add(self.probe, self.probe).numpy()

    def counted(self) -> dict[str, int]:
        """The counts of a step, without the counts of waiting."""
        readings = [counters()]
        for act in (self, self.wait):
            act()
            readings.append(counters())
        return {
            name: 2 * readings[1][name] - readings[0][name] - readings[2][name]
            for name in COUNTERS
            if readings[0]
        }


def on_cpu(graphs: Any) -> dict[str, int]:
    """The nodes that compute something on the CPU, by op."""
    from tensorflow_wgpu import _fallbacks

    found: dict[str, int] = {}
    for node in (n for f in graphs for graph in f.partition_graphs for n in graph.node):
        idle = node.op in _fallbacks.PLUMBING or node.op == "Const"
        if not idle and "device:CPU" in node.device and _fallbacks.has_floats(node):
            found[node.op] = found.get(node.op, 0) + 1
    return found


def of(key: str) -> Callable[[], Run]:
    """The maker of a row."""

    def make() -> Run:
        step = Step(key)
        told: dict[str, Any] = {}
        if ON_WGPU:
            from tensorflow_wgpu import _fallbacks

            with _fallbacks.collected() as graphs:
                results = step()
            told["on_cpu"] = on_cpu(graphs)
        else:
            results = step()
        told["difference"] = difference([y.numpy() for y in results], step.wanted)
        told |= step.counted()

        def run(times: int) -> None:
            step(times)

        run.told = told
        return run

    return make


def first(key: str) -> Callable[[], Run]:
    """The maker of a row that reports only the seconds of the first two steps."""

    def make() -> Run:
        step = Step(key)
        before, times = counters(), [time.perf_counter()]
        with tf.device(DEVICE):
            step.function.get_concrete_function(*step.inputs)
        for act in (lambda: None, step, step):
            act()
            times.append(time.perf_counter())
        spent = [after - start for start, after in zip(times, times[1:])]

        def run(times: int) -> None:
            del times

        run.told = {"tracing": spent[0], "first": spent[1], "second": spent[2]}
        if before:
            run.told["pipelines"] = counters()["pipelines"] - before["pipelines"]
        return run

    return make


def about() -> str:
    """The versions, and the adapter."""
    text = f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {DEVICE}"
    if not ON_WGPU:
        return text
    from tensorflow_wgpu._library import devices

    with tf.device(DEVICE):
        tf.zeros([1]).numpy()
    device = devices()[DEVICE]
    return f"{text}: {device['name']}, {device['backend']}, {device['driver']}"


tell(about=about())
serve({made.key: (first if "first" in HOW else of)(made.key) for made in NETWORKS})
