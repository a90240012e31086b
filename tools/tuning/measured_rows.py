"""Rows from reports of users' GPUs: `python -m tensorflow_wgpu --self-test --json` and `kernels
--json`, both with `TF_WGPU_AUTOTUNE=1`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

from shipped_table import Choice, Class, Measured, Row

#: A candidate must take at most this part of the time without tuning, as at run time.
GAIN = 0.95


class Refused(ValueError):
    """A report that says too little."""


def read(path: Path) -> list[Row]:
    """The rows of a report, one for each class that was timed, whatever won."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Refused(f"{path}: no JSON: {error}") from error
    try:
        return list(rows(report))
    except Refused as error:
        raise Refused(f"{path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"{path}: no report with timings: {error!r}") from error


def told(report: dict[str, Any], *names: str) -> str:
    """A text of a report that must not be empty. Semicolons separate the parts of a source."""
    value: Any = report
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise Refused(f"it tells no {' '.join(names)}")
    return re.sub(r"[\s;]+", " ", value).strip()


def driver_of(report: dict[str, Any]) -> str:
    """The driver's name and version. DX12 tells no version. Metal tells neither, because its driver
    is a part of the system: there the day decides alone.
    """
    adapter = report.get("adapter") or {}
    names = [n for n in ("driver", "driver_info") if str(adapter.get(n) or "").strip()]
    if names:
        return " ".join(told(report, "adapter", name) for name in names)
    if adapter.get("backend") == "Metal":
        return "Metal"
    return told(report, "adapter", "driver")


def rows(report: dict[str, Any]) -> Iterator[Row]:
    """The rows of a report's `tuning`."""
    adapter = told(report, "adapter", "name")
    driver = driver_of(report)
    day = date.fromisoformat(told(report, "date")[:10]).isoformat()
    searches = report.get("tuning")
    if not searches:
        raise Refused("it has no timings; they need TF_WGPU_AUTOTUNE=1 and an empty TF_WGPU_CACHE")
    for search in searches:
        of = Class.read("\t".join(str(search["class"][name]) for name in Class._fields))
        timed = [
            (int(c["nanoseconds"]), Choice(str(c["tile"]), str(c["parts"]), str(c["schedule"])))
            for c in search["candidates"]
        ]
        if not timed or min(nanoseconds for nanoseconds, _ in timed) <= 0:
            raise Refused("a search has no times")
        untuned, best = timed[0], min(timed)
        if best[0] > GAIN * untuned[0]:
            best = untuned
        yield Row(of, best[1], Measured(adapter, driver, day, best[0], untuned[0]))


def version(driver: str) -> tuple[str, tuple[int, ...]]:
    """A driver's name, without its numbers, and its numbers."""
    first = re.search(r"\d", driver)
    at = first.start() if first else len(driver)
    return driver[:at].strip(), tuple(int(number) for number in re.findall(r"\d+", driver[at:]))


def best(found: Iterable[Row]) -> Row:
    """The measured row that a class gets. Of the rows of one adapter with one driver, the newest
    driver counts, then the last day. Of several adapters or drivers, the last day counts. What is
    left is decided by the text, so that the order of reports changes nothing.
    """
    newest: dict[tuple[str, str], Row] = {}

    def age(row: Row) -> tuple[tuple[int, ...], str, str]:
        assert isinstance(row.source, Measured)
        return version(row.source.driver)[1], row.source.date, str(row)

    for row in found:
        assert isinstance(row.source, Measured)
        key = row.source.adapter, version(row.source.driver)[0]
        newest[key] = max(newest.get(key, row), row, key=age)
    return max(newest.values(), key=lambda row: (row.source.date, str(row)))  # type: ignore[union-attr]
