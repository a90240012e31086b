"""Steps per second of training from a dataset, by where its elements wait for the step.

    python benches/prefetch.py [--seconds 20] [--side 128]

`none`: an element is made when the step asks for it. `host`: `Dataset.prefetch`, so making it
overlaps with steps, and the upload is part of the step. `device`: `prefetch_to_device`, so the
upload overlaps, too. The ways take turns within one run. From a trace of a few steps of each: the
share of the time of staging uploads in which the device computes.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow_wgpu._library import first_device

DEVICE = first_device()
WAYS = ("none", "host", "device")
#: The steps of a turn. Those before the counted ones use up elements that were prefetched during
#: the others' turns.
COUNTED, BEFORE = 20, 6
TRACED = 6


def elements(side: int, latency: float) -> tf.data.Dataset:
    """Batches of images. Each image takes `latency` seconds to arrive, as from a disk."""
    options = tf.data.Options()
    # TensorFlow adds a prefetch behind a dataset without one.
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False

    def image(i: tf.Tensor) -> tf.Tensor:
        wait = tf.numpy_function(lambda k: (time.sleep(latency), k)[1], [i], tf.int64)
        return tf.fill([16, side, side, 3], tf.cast(wait % 7, tf.float32))

    return tf.data.Dataset.range(1 << 40).map(image).with_options(options)


def iterator(way: str, side: int, latency: float) -> Iterator[tf.Tensor]:
    """The elements, which wait in the place that `way` names."""
    dataset = elements(side, latency)
    if way == "host":
        dataset = dataset.prefetch(2)
    elif way == "device":
        dataset = dataset.prefetch(2)
        dataset = dataset.apply(tf.data.experimental.prefetch_to_device(DEVICE, buffer_size=2))
    return iter(dataset)


def overlap(folder: Path) -> float | None:
    """The share of staging in which the device computes, from the trace in a folder."""
    xplane = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    space = xplane.XSpace()
    (path,) = folder.rglob("*.xplane.pb")
    space.ParseFromString(path.read_bytes())
    computing: list[tuple[int, int]] = []
    staging: list[tuple[int, int]] = []
    for plane in space.planes:
        names = {key: value.name for key, value in plane.event_metadata.items()}
        for line in plane.lines:
            start = line.timestamp_ns * 1000
            for event in line.events:
                begin = start + event.offset_ps
                span = (begin, begin + event.duration_ps)
                if line.name == "Dispatches":
                    computing.append(span)
                elif names[event.metadata_id] == "WGPU stage an upload":
                    staging.append(span)
    total = sum(end - begin for begin, end in staging)
    if not total:
        return None
    both = 0
    for begin, end in staging:
        both += sum(max(0, min(end, e) - max(begin, b)) for b, e in computing)
    return both / total


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20, help="of each way")
    parser.add_argument(
        "--side", type=int, default=128, help="of the images, of which a batch is 16"
    )
    parser.add_argument(
        "--latency", type=float, default=0.01, help="seconds an element takes to come"
    )
    options = parser.parse_args()
    with tf.device(DEVICE):
        kernel = tf.Variable(tf.random.normal([3, 3, 3, 16], stddev=0.1))

    @tf.function
    def step(images: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.nn.conv2d(images, kernel, 2, "SAME")))
        kernel.assign_sub(0.01 * tape.gradient(loss, kernel))
        return loss

    def steps(source: Iterator[tf.Tensor], count: int) -> float:
        start = time.perf_counter()
        with tf.device(DEVICE):
            for _ in range(count):
                loss = step(next(source))
        loss.numpy()
        return count / (time.perf_counter() - start)

    sources = {way: iterator(way, options.side, options.latency) for way in WAYS}
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for source in sources.values():
        steps(source, 3)
    end = time.perf_counter() + options.seconds * len(WAYS)
    while time.perf_counter() < end:
        for way, source in sources.items():
            steps(source, BEFORE)
            speeds[way].append(steps(source, COUNTED))
    print("| Elements wait | Steps/s | Against none | Staging while the device computes |")
    print("|---|---|---|---|")
    base = statistics.median(speeds["none"])
    for way, source in sources.items():
        with tempfile.TemporaryDirectory() as folder:
            steps(source, BEFORE)
            tf.profiler.experimental.start(folder)
            steps(source, TRACED)
            tf.profiler.experimental.stop()
            share = overlap(Path(folder))
        speed = statistics.median(speeds[way])
        told = "-" if share is None else f"{share:.0%}"
        print(f"| {way} | {speed:.1f} | {speed / base:.2f} | {told} |")


if __name__ == "__main__":
    main()
