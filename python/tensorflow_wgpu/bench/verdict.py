"""The meaning of the figures: a sentence for each model, bars, and a row for the table of adapters.
All of it is text, made from the rows that `measure` returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorflow_wgpu.bench.catalogue import MODELS
from tensorflow_wgpu.bench.report import number

#: Speeds that differ by at most this share count as equal.
ALIKE = 0.05
#: Results that differ by more than this share of the largest are reported.
APART = 1e-2
#: Characters of the longest bar.
WIDTH = 40


def groups(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows of each model and phase."""
    for key in dict.fromkeys((row["model"], row["phase"]) for row in rows):
        yield [row for row in rows if (row["model"], row["phase"]) == key]


def title(row: dict[str, Any]) -> str:
    """The model and phase of a row."""
    entry = MODELS.get(row["model"])
    return f"{entry.title if entry else row['model']}, {row['phase']}"


def device(row: dict[str, Any]) -> str:
    """The device of a row, as it is written in text."""
    name = row["device"].removeprefix("/device:")
    return "the CPU" if name == "CPU:0" else name


def times(ratio: float) -> str:
    """A ratio with two digits, or with all digits before the decimal point."""
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """A sentence for each model, phase and device that compares it with the last device, the
    CPU.
    """
    lines = []
    for group in groups(rows):
        *others, last = group
        if "error" in last or not others:
            others = group
        for row in others:
            if "error" in row:
                lines.append(f"{title(row)}: {device(row)} failed: {row['error'].splitlines()[0]}")
            elif "error" not in last and row is not last:
                lines.append(f"{title(row)}: {sentence(row, last)}")
    return lines


def sentence(row: dict[str, Any], other: dict[str, Any]) -> str:
    """A sentence that compares a row's device with another one's."""
    ratio = row["units_per_s"] / other["units_per_s"]
    if abs(ratio - 1) <= ALIKE:
        said = f"{device(row)} is as fast as {device(other)}"
    elif ratio > 1:
        said = f"{device(row)} is {times(ratio)} times as fast as {device(other)}"
    else:
        said = f"{device(row)} takes {times(1 / ratio)} times as long as {device(other)}"
    if not row["finite"]:
        return f"{said}, but its results are not finite"
    if row["difference"] > APART:
        return f"{said}, but the results differ by {100 * row['difference']:.1f} %"
    return said


def bars(rows: list[dict[str, Any]], encoding: str | None) -> str:
    """A bar for each device's speed, in characters that `encoding` has."""
    try:
        "█".encode(encoding or "ascii")
        mark = "█"
    except (UnicodeEncodeError, LookupError):
        mark = "#"
    lines = []
    for group in groups([row for row in rows if "error" not in row]):
        most = max(row["units_per_s"] for row in group)
        lines.append(f"{title(group[0])}, {group[0]['unit']}/s")
        for row in group:
            speed = row["units_per_s"]
            length = max(1, round(WIDTH * speed / most))
            name = row["device"].removeprefix("/device:")
            lines.append(f"  {name:6} {mark * length} {number(speed)}")
    return "\n".join(lines)


def adapter_row(results: dict[str, Any]) -> str | None:
    """A row of docs/ADAPTERS.md, to be pasted into an issue; None without an adapter."""
    adapter, versions, host = results["adapter"], results["versions"], results["host"]
    if adapter is None:
        return None
    cells = (
        f"{adapter['name']} ({adapter['backend']})",
        " ".join(filter(None, (adapter["driver"], adapter["driver_info"]))) or "unknown",
        f"{host['os']}, {host['cpu']}, TensorFlow {versions['tensorflow']}",
        "`bench`, beside the CPU: " + "; ".join(ratios(results["rows"])),
    )
    return "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def ratios(rows: list[dict[str, Any]]) -> Iterator[str]:
    """For each model and phase, how many times as fast the first device is as the last one."""
    for group in groups(rows):
        first, last = group[0], group[-1]
        if "error" in first:
            yield f"{title(first)} failed"
        elif "error" not in last and first is not last:
            yield f"{title(first)} {first['units_per_s'] / last['units_per_s']:.2g} ×"
