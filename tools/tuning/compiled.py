"""Compiles each candidate of rows of `benches/kernels` for a chip, as `tools/limits` does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import bounds_rows
import chips
import fetch
import rows
from bounds_rows import Candidate

#: The family of GPUs that each chip stands for. Shims have ids of their own.
STANDS_FOR = {
    "navi31": "rdna3",
    "gfx1201": "rdna4",
    "turing": "turing",
    "ampere": "ampere",
    "ada": "ada",
    "blackwell": "blackwell",
    "dg2": "alchemist",
    "bmg": "battlemage",
    "m1": "apple",
    "adreno740": "adreno740",
}
#: Families of rows that may be one contraction.
FAMILIES = ("matmul:", "einsum:", "conv:", "fused: _WgpuFusedMatMul", "fused: _WgpuFusedConv2D")


def mesa(folder: Path) -> str:
    """The version of Mesa, which is fetched if it is missing."""
    if not fetch.is_supported():
        raise SystemExit("tuning: the drivers' packages are those of Debian 12 on x86-64")
    folder.mkdir(parents=True, exist_ok=True)
    fetch.fetch_newest(folder)
    return fetch.newest_version(folder)


def wanted(program: Path, texts: list[str]) -> list[str]:
    """The rows that may be one contraction, of those that the texts choose."""
    return [name for name in rows.names(program, texts) if name.startswith(FAMILIES)]


def candidates(
    folder: Path, program: Path, chip: str, version: str, names: list[str]
) -> Iterator[Candidate]:
    """The candidates of rows on a chip."""
    starter = chips.starter(folder, chips.CHIPS[chip])
    options = ["--candidates", "--family", STANDS_FOR[chip], "--batch", "64"]
    command = [*starter, program, *options]
    core = min(os.sched_getaffinity(0))
    for found in rows.run(command, rows.environment(folder, chip), names, core):
        if not found.candidate:
            continue
        one = bounds_rows.candidate(chip, version, found.row, found.asked, found.candidate)
        limits = rows.limits_of(found, chip, version)
        one.problem, one.bound = limits.problem, limits.bound and round(limits.bound, 4)
        one.occupancy, one.spills = limits.occupancy, limits.spills
        yield one
