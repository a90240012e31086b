"""Runs `peer.py` and `step.py`, and makes the model's figures from their output."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from model import Link, Machine, Step

HERE = Path(__file__).parent
#: A process that takes longer is an error.
SECONDS = 400


class Work(NamedTuple):
    """A stack of dense layers, of `batch` rows for each device, and the bytes of a bucket."""

    layers: int
    width: int
    batch: int
    steps: int
    bucket: int

    def gradients(self) -> tuple[float, ...]:
        """Bytes of each layer's gradient."""
        return (4.0 * self.width * self.width,) * self.layers


def ports(count: int) -> list[str]:
    """Unused ports of this machine."""
    with ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(count)]
        for free in found:
            free.bind(("127.0.0.1", 0))
        return [str(free.getsockname()[1]) for free in found]


def start(script: str, *arguments: Any, **env: str) -> subprocess.Popen[str]:
    """Starts one of the scripts."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env={**os.environ, **env}, text=True, **pipes)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The fields that a script prints at its end."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"scaling: a process took more than {SECONDS} s") from None
    if process.returncode:
        raise SystemExit(f"scaling: a process failed:\n{err[-3000:]}")
    return json.loads(out.splitlines()[-1])


def devices(count: int, adapter: int) -> dict[str, str]:
    """The variable that makes `count` devices of one adapter."""
    return {"TF_WGPU_VISIBLE_DEVICES": ",".join([str(adapter)] * count)}


def run_devices(work: Work, count: int, adapter: int, **env: str) -> dict[str, Any]:
    """A run with `count` devices in one process."""
    return told(start("step.py", *work, **devices(count, adapter), **env))


def run_workers(work: Work, count: int, adapter: int) -> dict[str, Any]:
    """A run of `count` processes with a device each: the slowest time, and the processor seconds of
    all.
    """
    spec = {"worker": [f"localhost:{port}" for port in ports(count)]}
    started = [
        start(
            "step.py",
            *work,
            **devices(1, adapter),
            TF_CONFIG=json.dumps({"cluster": spec, "task": {"type": "worker", "index": i}}),
        )
        for i in range(count)
    ]
    with ThreadPoolExecutor(count) as threads:
        rows = list(threads.map(told, started))
    wall = max(row["train"]["wall"] for row in rows)
    cpu = sum(row["train"]["cpu"] for row in rows)
    return {"train": {"wall": wall, "cpu": cpu}, "replicas": rows[0]["replicas"]}


def line(sizes: list[float], seconds: list[float]) -> tuple[float, float]:
    """The latency and the seconds of a byte that fit best in relative terms, neither below zero."""
    weights = [1.0 / max(s, 1e-9) ** 2 for s in seconds]
    total = sum(weights)
    mean_x = sum(w * x for w, x in zip(weights, sizes)) / total
    mean_y = sum(w * y for w, y in zip(weights, seconds)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, x in zip(weights, sizes))
    slope = sum(w * (x - mean_x) * (y - mean_y) for w, x, y in zip(weights, sizes, seconds))
    slope = max(slope / spread, 0.0) if spread else 0.0
    return max(mean_y - slope * mean_x, 0.0), slope


def link(rows: dict[str, list[float]], add_per_byte: float = 0.0) -> Link:
    """A link from samples."""
    latency, per_byte = line(rows["bytes"], rows["wall"])
    cpu, cpu_per_byte = line(rows["bytes"], rows["cpu"])
    return Link(latency, per_byte, add_per_byte, cpu, cpu_per_byte)


def processors(seconds: float = 2.0) -> float:
    """The number of processors that this machine has free now, beside its other load."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    busy = "import time\nb = time.perf_counter()\n"
    busy += f"while time.perf_counter() - b < {seconds}: pass\nprint(time.process_time())"
    running = [
        subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE, text=True)
        for _ in range(count or 1)
    ]
    return sum(float(p.communicate()[0]) for p in running) / seconds


class Load:
    """Asks for the number of free processors while the runs go on, and keeps the mean."""

    def __init__(self) -> None:
        """Begins without an answer."""
        self.asked: list[float] = []

    def ask(self) -> None:
        """Asks once more."""
        self.asked.append(processors())

    def mean(self) -> float:
        """The mean of all answers."""
        return sum(self.asked) / len(self.asked)


def figures(
    work: Work, adapter: int, on_software: bool, processors_now: float, with_network: bool
) -> tuple[Step, Machine, dict[str, Any]]:
    """The model's step and machine, and the measurements that they come from."""
    one = run_devices(work, 1, adapter)
    copies = told(start("peer.py", **devices(1, adapter)))
    add = link(copies["add"])
    raw: dict[str, Any] = {"step": one, "copies": copies}
    network = Link(0.0, 0.0, add.per_byte)
    if with_network:
        raw["messages"] = told(start("peer.py", "messages", *ports(2), **devices(1, adapter)))
        network = link(raw["messages"], add.per_byte)
    forward = min(one["forward"]["wall"], one["compute"]["wall"])
    step = Step(
        forward=forward,
        backward=one["compute"]["wall"] - forward,
        gradients=work.gradients(),
        cpu=one["train"]["cpu"],
        update=max(one["train"]["wall"] - one["compute"]["wall"], 0.0),
    )
    machine = Machine(
        devices=1 << 20,
        processors=processors_now if on_software else None,
        down=link(copies["down"], add.per_byte),
        up=link(copies["up"]),
        network=network,
    )
    return step, machine, raw


def adapter_of() -> dict[str, str]:
    """Name, driver and type of the first device."""
    code = (
        "import json, tensorflow as tf, tensorflow_wgpu._library as l\n"
        "tf.constant(1.0) + 1.0\nprint(json.dumps(next(iter(l.devices().values()))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
