"""Trains a small CNN on WGPU and on the CPU, and says what ran where and how fast.

The model is compiled and fitted as on any other device: no `tf.device`, no environment variables.
The CPU's run is a second process in which the plug-in is hidden.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 64
REQUIRED_ACCURACY = 0.95
# Nodes of a graph that compute nothing.
PLUMBING = {"NoOp", "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv"}


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, test images, training labels, test labels: 1797 scans of 8x8 pixels."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype("float32").reshape(-1, 8, 8, 1)
    return train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)


def build_model() -> keras.Model:
    """A small CNN."""
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )


class StepTimer(keras.callbacks.Callback):
    """Milliseconds per training step in each epoch."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts with no epochs."""
        self.epochs: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Starts counting."""
        self.steps, self.seconds = 0, 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Notes the start of a step."""
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Adds a step, which is over when its loss is on the host."""
        float(logs["loss"])
        self.seconds += time.perf_counter() - self.start
        self.steps += 1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch's mean."""
        self.epochs.append(1000 * self.seconds / self.steps)


def train(epochs: int) -> tuple[keras.Model, dict[str, Any]]:
    """Trains and evaluates; returns the model and its curves, test accuracy and time per step."""
    keras.utils.set_random_seed(7)
    train_x, test_x, train_y, test_y = digits()
    model = build_model()
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    timer = StepTimer()
    history = model.fit(
        train_x,
        train_y,
        batch_size=BATCH,
        epochs=epochs,
        validation_data=(test_x, test_y),
        callbacks=[timer],
    )
    _, accuracy = model.evaluate(test_x, test_y, batch_size=BATCH, verbose=0)
    # The first epoch traces, optimizes and compiles.
    step_ms = float(np.median(timer.epochs[1:] or timer.epochs))
    return model, {"history": history.history, "accuracy": accuracy, "step_ms": step_ms}


def train_on_cpu(epochs: int) -> dict[str, Any]:
    """The same training in a process that sees no WGPU device."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "cpu.json"
        command = [sys.executable, __file__, "--epochs", str(epochs), "--cpu-result", str(result)]
        subprocess.run(command, env={**os.environ, "TF_WGPU_VISIBLE_DEVICES": "-1"}, check=True)
        return json.loads(result.read_text())


def nodes_of_a_step(model: keras.Model) -> list[Any]:
    """The nodes that one training step executes, from TensorFlow's own record of each device's
    graph. The nodes in a region of the graph optimizer stand in its place.
    """
    from tensorflow.python.eager import context
    from tensorflow_wgpu import _regions

    train_x, _, train_y, _ = digits()
    # TensorFlow records a graph when it is first prepared, hence a new step function.
    model.make_train_function(force=True)
    context.enable_graph_collection()
    try:
        model.train_on_batch(train_x[:BATCH], train_y[:BATCH])
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()
    return _regions.all_nodes(metadata.function_graphs)


def ops_of_a_step(model: keras.Model) -> dict[str, Counter[str]]:
    """Which ops each device runs in one training step, and how many of each."""
    ran: dict[str, Counter[str]] = {}
    for node in nodes_of_a_step(model):
        if node.op not in PLUMBING:
            device = tf.DeviceSpec.from_string(node.device)
            ran.setdefault(f"{device.device_type}:{device.device_index}", Counter())[node.op] += 1
    return ran


def plot(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draws the learning curve of each device, one above the other."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(results), 1, figsize=(8, 7), sharex=True, sharey=True, layout="constrained"
    )
    figure.suptitle("Handwritten digits: accuracy by epoch", fontsize=14)
    for axis, (name, result) in zip(axes, results.items()):
        history = result["history"]
        epochs = range(1, len(history["accuracy"]) + 1)
        axis.plot(
            epochs, history["accuracy"], marker="o", markersize=4, color="#1f77b4", label="training"
        )
        axis.plot(
            epochs, history["val_accuracy"], marker="s", markersize=4, color="#d95f02", label="test"
        )
        axis.axhline(
            REQUIRED_ACCURACY,
            color="#777777",
            linestyle=":",
            linewidth=1,
            label=f"{REQUIRED_ACCURACY:.0%}",
        )
        summary = (
            f"test accuracy {result['accuracy']:.3f}, {result['step_ms']:.1f} ms per step of "
            f"{BATCH} images"
        )
        axis.set_title(f"{name}\n{summary}", fontsize=10, loc="left")
        axis.set_ylabel("accuracy")
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right")
    axes[-1].set_xlabel("epoch")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def adapter() -> dict[str, Any]:
    """The adapter behind WGPU:0."""
    import tensorflow_wgpu

    adapters = tensorflow_wgpu.report()["adapters"]
    return next(a for a in adapters if a["device"] == "WGPU:0")


def main() -> int:
    """Trains on both devices, reports, and fails unless the model learned on WGPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="folder of the picture"
    )
    parser.add_argument("--cpu-result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    if arguments.cpu_result:
        _, result = train(arguments.epochs)
        arguments.cpu_result.write_text(json.dumps(result))
        return 0

    if not tf.config.list_physical_devices("WGPU"):
        print(
            "TensorFlow sees no WGPU device; `python -m tensorflow_wgpu` says why.", file=sys.stderr
        )
        return 1
    first = adapter()
    wgpu_name = f"WGPU:0, {first['name']} through {first['backend']}"
    print(f"Training on {wgpu_name}", flush=True)
    print("(TensorFlow's own lines about CUDA and cuInit are harmless: it looks for CUDA first.)")
    model, wgpu = train(arguments.epochs)
    ran = ops_of_a_step(model)
    print("\nTraining on the CPU", flush=True)
    cpu = train_on_cpu(arguments.epochs)

    print(f"\nTest accuracy   WGPU {wgpu['accuracy']:.4f}   CPU {cpu['accuracy']:.4f}")
    print(
        f"Time per step   WGPU {wgpu['step_ms']:.1f} ms   CPU {cpu['step_ms']:.1f} ms   ({BATCH} "
        "images)"
    )
    if first["type"] == "Cpu":
        print(
            "                WGPU:0 is a software adapter: your CPU behind a graphics driver, which"
            "\n                is slower than TensorFlow's own code for CPUs."
        )
    print("One training step ran")
    for device, ops in sorted(ran.items(), reverse=True):
        listing = ", ".join(f"{op} {n}" if n > 1 else op for op, n in ops.most_common())
        line = f"  on {device}, {ops.total()} ops: {listing}"
        print(textwrap.fill(line, 100, subsequent_indent="    ", break_long_words=False))
    picture = arguments.output / "learning-curves.png"
    plot({wgpu_name: wgpu, "CPU": cpu}, picture)
    print(f"Learning curves: {picture.resolve()}")

    if wgpu["accuracy"] <= REQUIRED_ACCURACY:
        print(f"The test accuracy should be above {REQUIRED_ACCURACY}.", file=sys.stderr)
        return 1
    # The second is what the graph optimizer makes of a convolution with its bias and activation.
    if not {"Conv2D", "_WgpuFusedConv2D"} & set(ran.get("WGPU:0", ())):
        print("The convolutions did not run on WGPU.", file=sys.stderr)
        return 1
    print(f"Success: trained on WGPU:0, with a test accuracy above {REQUIRED_ACCURACY:.0%}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
