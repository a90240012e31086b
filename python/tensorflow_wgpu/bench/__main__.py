"""Times inference and training of models on WGPU, on the CPU and, if there is one, on a `GPU`.

    python -m tensorflow_wgpu.bench                             # all models, sizes by the adapter
    python -m tensorflow_wgpu.bench --models resnet50 --batch 32 --image 224 --json r.json --plot
    r.png

The devices take turns in one process and start from the same weights. Host time lasts until the
call returns, before the result is waited for. CPU seconds are those of the process, which include a
software adapter's work.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import sys
from typing import Any

from tensorflow_wgpu._library import device_type, first_device
from tensorflow_wgpu.bench import catalogue, report, verdict

#: The options for sizes.
SIZES = {
    "batch": "images or sequences in a batch",
    "image": "width and height of an image",
    "length": "elements of a sequence",
    "width": "features of an element",
    "blocks": "layers of a transformer or a recurrent network",
}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tensorflow_wgpu.bench", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--models", help="names with commas between them; the default is all")
    parser.add_argument("--phases", help="inference, training or both (the default)")
    parser.add_argument(
        "--devices", help="such as WGPU:0,CPU:0; the default is the first one of each type"
    )
    parser.add_argument("--repeat", type=int, help="how many steps are timed (5, with --quick 2)")
    parser.add_argument(
        "--quick", action="store_true", help="tiny models and few steps, to see that it works"
    )
    parser.add_argument(
        "--full", action="store_true", help="a GPU's sizes on a software adapter, too"
    )
    for name, meaning in SIZES.items():
        parser.add_argument(f"--{name}", type=int, help=meaning)
    parser.add_argument("--list", action="store_true", help="list the models, and run nothing")
    parser.add_argument(
        "--profile", action="store_true", help="print a profile of one step of each"
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--plot", help="draw the speeds into this PNG; needs matplotlib")
    found = parser.parse_args()
    if found.repeat is not None and found.repeat < 1:
        parser.error("--repeat must be at least 1")
    try:
        found.models = catalogue.chosen(found.models, "model", catalogue.MODELS)
        found.phases = catalogue.chosen(found.phases, "phase", catalogue.PHASES)
    except ValueError as error:
        parser.error(str(error))
    return found


def main() -> int:
    """Runs it. The exit code is 1 when a row failed, 2 when nothing could be run."""
    options = arguments()
    if options.list:
        for name, entry in catalogue.MODELS.items():
            print(f"{name}: {entry.title}, in {entry.unit}")
        return 0
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.plot:
        try:
            report.pyplot()
        except report.MissingError as error:
            print(error, file=sys.stderr)
            return 2
    import tensorflow as tf

    from tensorflow_wgpu import report as library_report
    from tensorflow_wgpu.bench import measure, workloads

    known = [
        device.name.removeprefix("/physical_device:")
        for device in tf.config.list_physical_devices()
    ]
    devices = options.devices.split(",") if options.devices else first_of_each(known)
    if absent := [d for d in devices if d not in known]:
        why = (
            "; `python -m tensorflow_wgpu` says why"
            if any(device_type() in d for d in absent)
            else ""
        )
        print(
            f"TensorFlow sees no {', '.join(absent)}, only {', '.join(known)}{why}", file=sys.stderr
        )
        return 2
    adapter = next((a for a in library_report()["adapters"] if a["device"] == first_device()), None)
    sizes = chosen(options, adapter, workloads)
    results = report.environment(adapter) | {"sizes": dataclasses.asdict(sizes), "rows": []}
    repeat = options.repeat or (2 if options.quick else 5)
    for model in options.models:
        for phase in options.phases:
            print(f"{model}, {phase}", file=sys.stderr, flush=True)
            rows = attempt(measure.measure, model, phase, sizes, devices, repeat, options.profile)
            results["rows"] += rows
            # A run that is stopped before its end has shown something, too.
            for line in verdict.verdicts(rows):
                print(f"  {line}", file=sys.stderr, flush=True)
            gc.collect()
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump(results, file, indent=1)
    # The row is for a table that people compare GPUs by: tiny models do not belong into it.
    for part in conclusion(results, adapter_row=not options.quick):
        print(part, end="\n\n")
    if options.quick:
        print(
            "--quick shows that everything works. It runs too little to tell what is faster.",
            file=sys.stderr,
        )
    if options.plot:
        report.plot(results, options.plot)
    return 1 if any("error" in row for row in results["rows"]) else 0


def conclusion(results: dict[str, Any], adapter_row: bool) -> list[str]:
    """The text printed at the end: the figures first, the verdicts last. Between them, with
    `adapter_row`, a row for the table of adapters.
    """
    rows = results["rows"]
    parts = [report.table(rows), verdict.bars(rows, sys.stdout.encoding)]
    if adapter_row and (row := verdict.adapter_row(results)):
        parts.append(f"For the table of adapters, in an issue:\n\n{row}")
    parts.append("\n".join(verdict.verdicts(rows)))
    return [part for part in parts if part]


def first_of_each(known: list[str]) -> list[str]:
    """WGPU, TensorFlow's own GPU, and the CPU. The CPU comes last: results are compared with its
    results.
    """
    return [name for name in ("WGPU:0", "GPU:0", "CPU:0") if name in known]


def chosen(options: argparse.Namespace, adapter: dict[str, Any] | None, workloads: Any) -> Any:
    """The sizes that follow from the options and the adapter."""
    gpu = adapter is not None and adapter["type"] != "Cpu"
    sizes = (
        workloads.TINY
        if options.quick
        else workloads.FULL
        if gpu or options.full
        else workloads.Sizes()
    )
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(sizes)}
    return dataclasses.replace(
        sizes, **{name: value for name, value in given.items() if value is not None}
    )


def attempt(
    measure: Any,
    model: str,
    phase: str,
    sizes: Any,
    devices: list[str],
    repeat: int,
    tell: bool,
) -> list[dict[str, Any]]:
    """The rows of a workload, or rows that give the reason why there are none."""
    import tensorflow as tf

    try:
        return measure(model, phase, sizes, [f"/device:{d}" for d in devices], repeat, tell)
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        message = f"{type(error).__name__}: {error}"
        print(message, file=sys.stderr)
        return [
            {"model": model, "phase": phase, "device": f"/device:{d}", "error": message}
            for d in devices
        ]


if __name__ == "__main__":
    sys.exit(main())
