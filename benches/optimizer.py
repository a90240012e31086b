"""What the graph optimizer saves: dispatches, bytes and time of a step with and without it, on one
adapter in one run.

    python benches/optimizer.py                      # all workloads, a table
    python benches/optimizer.py --only gelu,adam --json results.json
    python benches/optimizer.py --passes    # how long grappler's passes take, with ours and without

Both versions of a step are the same Python function, traced twice; TensorFlow runs one of them
without plug-in optimizers. Timed calls alternate between the two. Bytes are those of all tensors
that dispatches bind: see `tensorflow_wgpu.statistics`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
import tensorflow_wgpu
from tensorflow_wgpu.bench import workloads
from tensorflow_wgpu.bench.workloads import Step

DEVICE = "/device:WGPU:0"


def application(name: str, batch: int = 4, size: int = 64) -> Callable[[], Step]:
    """A training step of one of Keras's applications on small images."""

    def make() -> Step:
        sizes = workloads.Sizes(batch=batch, image=size)
        model = workloads.application(name)(sizes)
        return workloads.training(model, *workloads.MODELS["resnet50"].data(sizes))

    make.__doc__ = f"A training step of {name}, {batch} images of {size}×{size}."
    return make


TRANSFORMER = workloads.Sizes(batch=16)


def transformer() -> Step:
    """A training step of an encoder of 2 blocks, width 128, 4 heads, 16 sequences of 64."""
    return workloads.training(
        workloads.transformer_model(), *workloads.MODELS["transformer"].data(TRANSFORMER)
    )


def transformer_inference() -> Step:
    """The same model's forward pass."""
    return workloads.inference(
        workloads.transformer_model(), *workloads.MODELS["transformer"].data(TRANSFORMER)
    )


WORKLOADS: dict[str, Callable[[], Step]] = {
    "gelu": workloads.gelu,
    "layer_norm": workloads.layer_norm,
    "layer_norm_gradient": workloads.layer_norm_gradient,
    "softmax": workloads.softmax,
    "adam": workloads.adam,
    "resnet50": application("ResNet50"),
    "mobilenet_v2": application("MobileNetV2"),
    "efficientnet_b0": application("EfficientNetB0"),
    "transformer": transformer,
    "transformer_inference": transformer_inference,
}


def plugin_optimizers(on: bool) -> None:
    """Sets whether functions that are instantiated from now on pass the plug-in's optimizer."""
    tf.config.optimizer.set_experimental_options({"use_plugin_optimizers": on})


def counts() -> dict[str, int]:
    """The device's counters."""
    return tensorflow_wgpu.statistics()["WGPU:0"]


def wait(result: tf.Tensor) -> None:
    """Waits for the device by reading one element."""
    tf.reshape(result, [-1])[0].numpy()


def measure(name: str, repeat: int) -> dict[str, Any]:
    """Measures one workload with and without the optimizer."""
    with tf.device(DEVICE):
        step = WORKLOADS[name]()
        functions = {on: tf.function(step) for on in (False, True)}
        row: dict[str, Any] = {"name": name, "what": WORKLOADS[name].__doc__.splitlines()[0]}
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for on, function in functions.items():
            plugin_optimizers(on)
            start, before = time.perf_counter(), counts()
            wait(function())
            first, after = time.perf_counter() - start, counts()
            # The first call initializes and compiles; the second is like all later ones.
            base = counts()
            function()
            wait(tf.zeros([1]))
            overhead = counts()
            wait(tf.zeros([1]))
            end = counts()
            side = {n: (overhead[n] - base[n]) - (end[n] - overhead[n]) for n in base}
            side["pipelines"] = after["pipelines"] - before["pipelines"]
            row["with" if on else "without"] = {
                "dispatches": side["dispatches"],
                "bytes": side["bytes"],
                "uploads": side["uploads"],
                "pipelines": side["pipelines"],
                "first_call_s": first,
            }
        for _ in range(repeat):
            for on, function in functions.items():
                plugin_optimizers(on)
                start = time.perf_counter()
                wait(function())
                seconds[on].append(time.perf_counter() - start)
        for on, side in ((False, "without"), (True, "with")):
            row[side]["step_s"] = statistics.median(seconds[on]) if seconds[on] else None
    return row


def ratio(row: dict[str, Any], what: str) -> str:
    """How many times as much the step takes without the optimizer."""
    without, with_ = row["without"][what], row["with"][what]
    return f"{without / with_:.2f}" if with_ else "-"


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        "| Step | Dispatches without | with | ratio | MB without | with | ratio | ms without | "
        "with | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [row["what"].rstrip(".")]
        for what, scale in (("dispatches", 1), ("bytes", 1e6), ("step_s", 1e-3)):
            for side in ("without", "with"):
                value = row[side][what]
                cells.append(
                    "-" if value is None else f"{value / scale:.{0 if scale == 1 else 1}f}"
                )
            cells.append("-" if row["with"][what] is None else ratio(row, what))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


PASS = re.compile(r"\] (\w+)[^ ]*: .*, time = ([\d.]+)ms")
#: TensorFlow's name for the optimizer of a plug-in.
OURS = "PluggableGraphOptimizer"


def passes(name: str, plugin: bool) -> dict[str, Any]:
    """Milliseconds of each grappler pass, by name, for the training graph of one of Keras's
    applications.

    TensorFlow logs them, so a separate process runs the step once, on one small image, and its log
    is read. Without `plugin`, TensorFlow optimizes by itself, with the passes that the plug-in
    turns off.
    """
    code = f"""
        import sys
        sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
        import optimizer, tensorflow as tf
        optimizer.plugin_optimizers({plugin})
        with tf.device(optimizer.DEVICE):
            step = tf.function(optimizer.application({name!r}, 1, 32)())
            print(len(step.get_concrete_function().graph.get_operations()))
            step().numpy()
    """
    env = {**os.environ, "TF_CPP_VMODULE": "meta_optimizer=1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    lines = [line[8:] for line in code.splitlines()]
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    # Small functions, such as initializers, have graphs of their own; the step's graph is the one
    # that takes longest.
    graphs: list[dict[str, float]] = [{}]
    for line in ran.stderr.splitlines():
        if "Starting optimization for grappler item" in line:
            graphs.append({})
        match = PASS.search(line)
        if match:
            graphs[-1][match[1]] = graphs[-1].get(match[1], 0.0) + float(match[2])
    step = max(graphs, key=lambda found: sum(found.values()))
    return {"operations": int(ran.stdout.split()[-1]), "milliseconds": step}


def compare_passes(name: str) -> dict[str, Any]:
    """Prints and returns the times of grappler for a training graph with the plug-in's optimizer
    and without it.
    """
    with_ours, alone = passes(name, True), passes(name, False)
    print(
        f"{name}: {alone['operations']} operations; milliseconds of all runs of a pass, with the "
        "plug-in's and without"
    )
    with_ours, alone = with_ours["milliseconds"], alone["milliseconds"]
    for found in sorted({*with_ours, *alone}, key=lambda found: -alone.get(found, 0.0)):
        print(f"{with_ours.get(found, 0.0):10.1f} {alone.get(found, 0.0):10.1f}  {found}")
    ours, total = with_ours[OURS], sum(alone.values())
    rest = sum(with_ours.values()) - ours
    print(f"{rest + ours:10.1f} {total:10.1f}  all")
    print(
        f"{OURS}: {ours / total:.1%} of TensorFlow's own time, {ours / rest:.1%} of what "
        "TensorFlow takes beside it"
    )
    return {"model": name, "milliseconds": {"with": with_ours, "without": alone}}


def main() -> None:
    """Runs the measurements that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(WORKLOADS), help="comma-separated workloads")
    parser.add_argument("--repeat", type=int, default=5, help="timed calls of each; 0 only counts")
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument(
        "--passes", nargs="?", const="EfficientNetV2L", help="time grappler's passes on this model"
    )
    arguments = parser.parse_args()
    if arguments.passes:
        results: Any = compare_passes(arguments.passes)
    else:
        tf.config.set_soft_device_placement(False)
        np.random.seed(0)
        tf.random.set_seed(0)
        rows = []
        for name in arguments.only.split(","):
            rows.append(measure(name, arguments.repeat))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            gc.collect()
        print(table(rows))
        adapters = [a for a in tensorflow_wgpu.report()["adapters"] if a["device"] == "WGPU:0"]
        results = {
            "adapter": adapters[0]["name"],
            "tensorflow": tf.__version__,
            "load": os.getloadavg(),
            "rows": rows,
        }
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
