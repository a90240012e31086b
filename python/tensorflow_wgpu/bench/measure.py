"""Times steps on several devices in turn, in one process, so that other load on the machine affects
all of them.
"""

from __future__ import annotations

import statistics as statistic
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensorflow_wgpu import _fallbacks, _regions
from tensorflow_wgpu._library import statistics
from tensorflow_wgpu._profile import profile
from tensorflow_wgpu.bench.workloads import MODELS, PHASES, Sizes

#: The counters of a device that are in a row, for one step.
COUNTERS = (
    "dispatches",
    "barriers",
    "barriers_needed",
    "bytes",
    "submissions",
    "uploads",
    "uploaded",
    "downloads",
    "downloaded",
    "copies",
)


class Side:
    """A workload on one device."""

    def __init__(
        self, device: str, model: str, phase: str, sizes: Sizes, weights: list[np.ndarray] | None
    ):
        self.device = device
        workload = MODELS[model]
        with tf.device(device):
            self.model = workload.make(sizes)
            if weights is not None:
                self.model.set_weights(weights)
            self.data = workload.data(sizes)
            self.function = tf.function(PHASES[phase](self.model, *self.data))
        self.row: dict[str, Any] = {
            "model": model,
            "phase": phase,
            "device": device,
            "unit": workload.unit,
        }
        self.row["units"] = workload.units(sizes)
        self.times: list[tuple[float, float, float]] = []

    def call(self) -> tuple[np.ndarray, tuple[float, float, float]]:
        """A step's result, and three times in seconds: until the result is there, until the call
        returns, and the process's CPU time.
        """
        cpu, start = time.process_time(), time.perf_counter()
        with tf.device(self.device):
            result = self.function()
        returned = time.perf_counter()
        value = result.numpy()
        end = time.perf_counter()
        return value, (end - start, returned - start, time.process_time() - cpu)

    def first(self) -> np.ndarray:
        """Runs the first step, which traces and compiles, and records where its nodes were
        placed.
        """
        before = self.counters()
        with _fallbacks.collected() as graphs:
            value, (seconds, _, _) = self.call()
        after = self.counters()
        self.row["first_s"] = seconds
        self.row["pipelines"] = after["pipelines"] - before["pipelines"] if after else None
        self.row |= placement(graphs, self.device)
        return value

    def count(self) -> None:
        """Runs a step whose counters are read: the second, since the first one also initializes."""
        before = self.counters()
        self.call()
        after = self.counters()
        self.row |= {name: after[name] - before[name] if after else None for name in COUNTERS}

    def profile(self, tell: bool) -> None:
        """Profiles a step for the GPU's time in it. `tell` prints the time of each row. Does
        nothing for a device that is not ours.
        """
        if not self.counters():
            return
        with profile() as recorded:
            self.call()
        name = self.device.removeprefix("/device:")
        (self.row["gpu_s"],) = (d.busy for d in recorded.devices if d.device == name)
        if tell:
            print(f"{self.row['model']}, {self.row['phase']}")
            recorded.table()

    def counters(self) -> dict[str, int]:
        """The device's counters; empty for a device that is not ours."""
        return statistics().get(self.device.removeprefix("/device:"), {})

    def finish(self) -> dict[str, Any]:
        """The row, with medians."""
        for name, column in zip(("step_s", "host_s", "cpu_s"), zip(*self.times)):
            self.row[name] = statistic.median(column)
        self.row["best_s"] = min(seconds for seconds, _, _ in self.times)
        self.row["units_per_s"] = self.row["units"] / self.row["step_s"]
        self.row["steps"] = len(self.times)
        return self.row


def placement(graphs: Sequence[Any], device: str) -> dict[str, Any]:
    """The number of nodes that compute something on the device, the number on the CPU, and which of
    the latter have floats.
    """
    on: Counter[str] = Counter()
    floats: Counter[str] = Counter()
    for node in _regions.all_nodes(graphs):
        if node.op in _fallbacks.PLUMBING or node.op == "Const":
            continue
        kind = node.device.rpartition("device:")[2].partition(":")[0]
        on["cpu" if kind == "CPU" else "device"] += 1
        if kind == "CPU" and _fallbacks.has_floats(node):
            floats[node.op] += 1
    if "CPU" in device:
        return {
            "nodes": sum(on.values()),
            "cpu_nodes": None,
            "cpu_share": None,
            "cpu_float_ops": None,
        }
    total = sum(on.values())
    share = on["cpu"] / total if total else 0.0
    return {
        "nodes": total,
        "cpu_nodes": on["cpu"],
        "cpu_share": share,
        "cpu_float_ops": dict(floats),
    }


def measure(
    model: str,
    phase: str,
    sizes: Sizes,
    devices: Sequence[str],
    repeat: int,
    tell: bool = False,
) -> list[dict[str, Any]]:
    """A row for each device. All start from the same weights. `difference` compares the first
    results with those of the last device. `tell` prints the profile.
    """
    import keras

    sides: list[Side] = []
    for device in devices:
        keras.utils.set_random_seed(0)
        weights = sides[0].model.get_weights() if sides else None
        sides.append(Side(device, model, phase, sizes, weights))
    values = [side.first() for side in sides]
    for side, value in zip(sides, values):
        scale = float(np.max(np.abs(values[-1]))) or 1.0
        side.row["finite"] = bool(np.isfinite(value).all())
        side.row["difference"] = float(np.max(np.abs(value - values[-1]))) / scale
        side.count()
    for _ in range(repeat):
        for side in sides:
            side.times.append(side.call()[1])
    for side in sides:
        side.profile(tell)
    return [side.finish() for side in sides]
