"""What a copy between host and device, an addition on the host and a message between processes
take: `peer.py` prints them as JSON, `peer.py serve PORTS` is the other process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from tensorflow_wgpu._library import first_device

#: Floats of the messages.
SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21)
ROUNDS = 13
#: Copies to the device between two reads from it.
AT_ONCE = 8


def cluster(ports: list[str]) -> tf.train.ClusterSpec:
    """Two processes of this machine."""
    return tf.train.ClusterSpec({"worker": [f"localhost:{port}" for port in ports]})


def serve(ports: list[str]) -> None:
    """Waits for the other process, for ever."""
    server = tf.distribute.Server(
        cluster(ports), job_name="worker", task_index=1, protocol="grpc", start=True
    )
    server.join()


def sampled(
    work: Callable[[int, Any], None], prepare: Callable[[int], Any] = lambda _: None
) -> dict[str, list[float]]:
    """Lower quartiles of seconds and medians of processor seconds of `work` by bytes. `prepare`
    makes its argument before the clock starts.
    """
    rows: dict[str, list[float]] = {"bytes": [], "wall": [], "cpu": []}
    for size in SIZES:
        wall, cpu = [], []
        for turn in range(ROUNDS + 1):
            given = prepare(size)
            begin, used = time.perf_counter(), time.process_time()
            work(size, given)
            if turn:
                wall.append(time.perf_counter() - begin)
                cpu.append(time.process_time() - used)
        rows["bytes"].append(4 * size)
        rows["wall"].append(sorted(wall)[ROUNDS // 4])
        rows["cpu"].append(sorted(cpu)[ROUNDS // 2])
    return rows


def copies() -> dict[str, dict[str, list[float]]]:
    """Copies from the device and to it. A copy to the device ends when the next byte comes back."""
    device = f"/device:{first_device()}"
    host = {size: np.random.default_rng(0).normal(size=size).astype("float32") for size in SIZES}
    with tf.device(device):
        there = {size: tf.constant(value) for size, value in host.items()}
        scalar = tf.constant(1.0)

    def fresh(size: int) -> tf.Tensor:
        # A tensor that was copied before still has its copy.
        with tf.device(device):
            tensor = there[size] + 1.0
            (scalar + 1.0).numpy()
            return tensor

    def down(size: int, given: tf.Tensor) -> None:
        del size
        given.numpy()

    def up(size: int, given: None) -> None:
        del given
        with tf.device(device):
            for _ in range(AT_ONCE):
                tf.constant(host[size])
            (scalar + 1.0).numpy()

    def nothing(size: int, given: None) -> None:
        del size, given
        (scalar + 1.0).numpy()

    with tf.device("/device:CPU:0"):
        pairs = {size: [tf.constant(value), tf.constant(value)] for size, value in host.items()}

    def add(size: int, given: None) -> None:
        del given
        with tf.device("/device:CPU:0"):
            tf.add_n(pairs[size])

    with tf.device(device):
        idle = sampled(nothing)
    told = {"down": sampled(down, fresh), "up": sampled(up), "add": sampled(add)}
    for what in ("wall", "cpu"):
        pairs = zip(told["up"][what], idle[what])
        told["up"][what] = [max(all_up - read, 0.0) / AT_ONCE for all_up, read in pairs]
    return told


def messages(ports: list[str]) -> dict[str, list[float]]:
    """Messages to another process and back, of which half is counted. Processor seconds are counted
    alike.
    """
    config = tf.compat.v1.ConfigProto(device_count={"WGPU": 0})
    server = tf.distribute.Server(
        cluster(ports), job_name="worker", task_index=0, protocol="grpc", config=config, start=True
    )
    results = {}
    graph = tf.Graph()
    with graph.as_default():
        for size in SIZES:
            with tf.device("/job:worker/task:0/device:CPU:0"):
                here = tf.compat.v1.get_variable(f"v{size}", [size])
            with tf.device("/job:worker/task:1/device:CPU:0"):
                away = tf.identity(here) + 1.0
            with tf.device("/job:worker/task:0/device:CPU:0"):
                results[size] = tf.reduce_max(tf.identity(away) * 1.0)
        start = tf.compat.v1.global_variables_initializer()
        with tf.compat.v1.Session(server.target) as session:
            session.run(start)
            rows = sampled(lambda size, _: session.run(results[size]))
    rows["wall"] = [seconds / 2 for seconds in rows["wall"]]
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2:])
    elif sys.argv[1:2] == ["messages"]:
        other = subprocess.Popen([sys.executable, __file__, "serve", *sys.argv[2:]])
        try:
            print(json.dumps(messages(sys.argv[2:])), flush=True)
        finally:
            other.kill()
            other.wait()
    else:
        print(json.dumps(copies()), flush=True)
