"""Prints the findings of the self-test: a line for each family, and a block for an issue."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorflow_wgpu import _library

ISSUE = "Paste this into an issue of tensorflow-wgpu:"
SEED = 1


def main(as_json: bool, seed: int = SEED) -> int:
    """Runs the self-test on the first device and prints it. The exit code is 0 if nothing failed,
    else 1.
    """
    # TensorFlow's own messages about this machine say nothing about the device.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    from tensorflow_wgpu.self_test import _cases, _run

    about = environment(tf.__version__)
    if not tf.config.list_physical_devices(_library.device_type()):
        message = "there is no WGPU device; `python -m tensorflow_wgpu` says why"
        print(json.dumps({**about, "ok": False, "problem": message}) if as_json else message)
        return 1
    features = (about["adapter"] or {}).get("features", {})
    lacks = [name for name in ("int64", "float64") if not features.get(name, True)]
    start = time.monotonic()

    def run(cases: Iterable[Any]) -> list[Any]:
        return list(_run.run(cases, _library.first_device(), seed, lacks))

    if as_json:
        found = run(_cases.CASES)
    else:
        print("\n".join(head(about)) + "\n", flush=True)
        # A device's first use may print a line, which would otherwise appear in the table.
        with tf.device(_library.first_device()):
            tf.zeros([1]).numpy()
        found = list(told(_cases.CASES, run))
    failed = [result for result in found if result.status == "failed"]
    seconds = time.monotonic() - start
    if as_json:
        cases = [result.as_dict() for result in found]
        everything = {**about, "ok": not failed, "seed": seed, "seconds": seconds, "cases": cases}
        # Only where the user asked for tuning; tools/tuning merges it into the shipped table.
        if timed := _library.tuning().get(_library.first_device()):
            everything["tuning"] = timed
        print(json.dumps(everything, indent=2))
    else:
        print(f"\n{summary(found)} {seconds:.0f} s.")
        if failed:
            print(f"\n{ISSUE}\n\n" + "\n".join(block(about, failed)))
    return 1 if failed else 0


def environment(tensorflow: str) -> dict[str, Any]:
    """The first device's adapter, the versions, and the settings."""
    library = _library.report()
    adapter = next((a for a in library["adapters"] if a["device"] == _library.first_device()), None)
    versions = {"tensorflow-wgpu": library["version"], "tensorflow": tensorflow}
    for package in ("keras", "numpy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "kind": "self-test",
        "schema": 1,
        "adapter": adapter,
        "versions": {**versions, "python": platform.python_version()},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "environment": library["environment"],
    }


def head(about: dict[str, Any]) -> Iterator[str]:
    """The lines that name the adapter and the versions."""
    adapter = about["adapter"]
    if adapter:
        driver = " ".join(filter(None, (adapter["driver"], adapter["driver_info"]))) or "unknown"
        yield f"adapter   {adapter['name']} ({adapter['type']}, {adapter['backend']})"
        yield f"driver    {driver}, kernels of the profile {adapter['profile']}"
        if adapter["numbers"]:
            yield f"numbers   {adapter['numbers']}, as checked at the adapter's first use"
    yield "versions  " + ", ".join(f"{name} {v}" for name, v in about["versions"].items())
    yield f"system    {about['system']}"
    if about["environment"]:
        yield "settings  " + " ".join(f"{k}={v}" for k, v in about["environment"].items())


def told(cases: Iterable[Any], run: Callable[[Iterable[Any]], list[Any]]) -> Iterator[Any]:
    """Prints a line for each family, its name first: if a driver crashes the process, the last line
    shows the family.
    """
    for family, group in itertools.groupby(cases, key=lambda case: case.family):
        print(f"{family:16} ", end="", flush=True)
        found = run(group)
        print(line(found), flush=True)
        yield from found


def line(found: list[Any]) -> str:
    """The outcome of a family, printed behind its name."""
    types = ", ".join(dict.fromkeys(result.dtype for result in found))
    failed = [result for result in found if result.status == "failed"]
    if failed:
        first = failed[0]
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"FAILED   {first.case} {first.dtype}{more}: {first.op or first.message[:120]}"
    passed = [result for result in found if result.status == "passed"]
    if not passed:
        return f"not offered: {found[0].message}"
    worst = max(passed, key=lambda result: result.worst)
    if worst.worst == 0:
        return f"passed   {types}: no difference"
    return (
        f"passed   {types}: largest error {100 * worst.worst:.2g} % of what is allowed, in "
        f"{worst.op} of {worst.dtype}"
    )


def summary(found: list[Any]) -> str:
    """The number of cases for each status."""
    counts = {
        status: sum(result.status == status for result in found)
        for status in ("passed", "failed", "not offered")
    }
    told = [f"{count} {status}" for status, count in counts.items() if count]
    return f"{len(found)} cases: {', '.join(told)}."


def block(about: dict[str, Any], failed: list[Any]) -> Iterator[str]:
    """The text to paste into an issue."""
    yield "```"
    yield from head(about)
    for result in failed:
        yield f"{result.family}/{result.case} {result.dtype}, seed {result.seed}"
        yield f"  {result.op + ': ' if result.op else ''}{result.message}"
        yield f"  arguments {' '.join(result.arguments) or 'none'}"
    yield "```"
