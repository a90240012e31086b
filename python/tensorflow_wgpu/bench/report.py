"""Output of the measurements: a table, JSON, a picture. Imports TensorFlow only for its version."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from typing import Any

SCHEMA = 1


class MissingError(RuntimeError):
    """A package that only some options need is not installed."""


def pyplot() -> Any:
    """matplotlib's plotting functions, without a window."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingError("pictures need matplotlib: python -m pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as found

    return found


def environment(adapter: dict[str, Any] | None) -> dict[str, Any]:
    """The adapter, the versions and the machine."""
    import keras
    import numpy
    import tensorflow as tf

    import tensorflow_wgpu

    keys = ("name", "type", "backend", "driver", "driver_info")
    return {
        "kind": "models",
        "schema": SCHEMA,
        "adapter": {key: adapter[key] for key in keys} if adapter else None,
        "versions": {
            "tensorflow-wgpu": tensorflow_wgpu.report()["version"],
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
        "date": datetime.datetime.now(datetime.timezone.utc)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z"),
        "host": {
            "cpu": processor(),
            "threads": os.cpu_count(),
            # Windows has none.
            "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
            "os": sys.platform,
        },
        "command": sys.argv,
    }


def processor() -> str:
    """The CPU's name, if the system reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def number(value: float | None, scale: float = 1.0) -> str:
    """Three significant digits."""
    if value is None:
        return "-"
    value /= scale
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


COLUMNS = (
    *("Model", "Phase", "Device", "Speed", "Step ms", "Host ms", "CPU s", "First s"),
    *("Dispatches", "Barriers", "Needed barriers", "MB", "Uploads", "Downloads", "On the CPU"),
)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        start = f"| {row['model']} | {row['phase']} | {row['device'].removeprefix('/device:')} |"
        if "error" in row:
            lines.append(f"{start} error: {row['error'].splitlines()[0].replace('|', '/')} |")
            continue
        share = row["cpu_share"]
        floats = sum((row["cpu_float_ops"] or {}).values())
        cells = [
            f"{number(row['units_per_s'])} {row['unit']}/s",
            number(row["step_s"], 1e-3),
            number(row["host_s"], 1e-3),
            number(row["cpu_s"]),
            number(row["first_s"]),
            number(row["dispatches"]),
            # Rows of an older version have none.
            number(row.get("barriers")),
            number(row.get("barriers_needed")),
            number(row["bytes"], 1e6),
            number(row["uploads"]),
            number(row["downloads"]),
            "-"
            if share is None
            else f"{row['cpu_nodes']} of {row['nodes']} nodes, {floats} with floats",
        ]
        lines.append(f"{start} " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(results: dict[str, Any], path: str) -> None:
    """Bars: images or tokens per second of each model and phase, by device."""
    found = pyplot()
    rows = [row for row in results["rows"] if "error" not in row]
    groups = list(dict.fromkeys((row["model"], row["phase"], row["unit"]) for row in rows))
    devices = list(dict.fromkeys(row["device"] for row in rows))
    figure, axes = found.subplots(figsize=(max(6.0, 1.2 * len(groups)), 5.0), layout="constrained")
    width = 0.8 / max(len(devices), 1)
    for k, device in enumerate(devices):
        speeds = {
            (r["model"], r["phase"], r["unit"]): r["units_per_s"]
            for r in rows
            if r["device"] == device
        }
        places = [i + (k - (len(devices) - 1) / 2) * width for i in range(len(groups))]
        name = device.removeprefix("/device:")
        bars = axes.bar(places, [speeds.get(g, 0.0) for g in groups], width, label=name)
        axes.bar_label(bars, fmt=number, fontsize=7)
    axes.set_yscale("log")
    axes.set_xticks(range(len(groups)), [f"{m}\n{p}\n{u}/s" for m, p, u in groups], fontsize=8)
    adapter = results["adapter"]["name"] if results["adapter"] else "no WGPU device"
    axes.set_title(
        f"{adapter}, TensorFlow {results['versions']['tensorflow']}, {results['date']}", fontsize=9
    )
    axes.legend()
    figure.savefig(path, dpi=150)
    found.close(figure)
