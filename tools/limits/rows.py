"""Rows of `benches/kernels` on a chip: the pipelines that the plans choose, and their hot loops."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import aco
import agx
import bounds
import brw
import chips
import ir3
import layers
import nak
from bounds import Model
from chips import CHIPS, Vendor
from machine_code import Counts, Reader, hot_loops

READERS: dict[str, Reader] = {
    chips.AMD.driver: aco.READER,
    chips.NVIDIA.driver: nak.READER,
    chips.INTEL.driver: brw.READER,
    chips.APPLE.driver: agx.READER,
    chips.QUALCOMM.driver: ir3.READER,
}
#: The chips, with what limits their loops.
MODELS: dict[str, Model] = {
    "navi31": bounds.rdna(bounds.RDNA3_MATRIX),
    "gfx1201": bounds.rdna(bounds.RDNA4_MATRIX),
    "turing": bounds.nvidia(2),
    "ampere": bounds.nvidia(1),
    "ada": bounds.nvidia(1),
    "blackwell": bounds.nvidia(1),
    "dg2": bounds.intel(8),
    "bmg": bounds.intel(16),
    "m1": bounds.apple,
    "adreno740": bounds.adreno,
    "adreno630": bounds.adreno,
}
#: A row with more operations for a byte is limited by arithmetic.
OPERATIONS_A_BYTE = 8.0
#: Labels of pipelines that are not the library's.
FOREIGN = "(wgpu internal)"


@dataclass
class Pipeline:
    """A pipeline as the driver describes it."""

    label: str
    statistics: dict[str, str] = field(default_factory=dict)
    listing: str = ""

    def number(self, name: str) -> int:
        """A statistic; 0 if the driver does not have it."""
        return int(float(self.statistics.get(name, "0")))


@dataclass
class Limits:
    """What limits a row on a chip: its hot loop, or the whole program if it has no loop."""

    chip: str
    row: str
    mesa: str
    kernel: str = ""
    problem: str = ""
    #: The number of dispatches of a call.
    dispatches: int = 0
    #: Whether arithmetic limits the row, not the memory's bandwidth.
    computes: bool = False
    registers: int = 0
    occupancy: int = 0
    spills: int = 0
    lanes: int = 0
    #: Whether `counts` are those of a loop.
    loops: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    lds_per_fma: float | None = None
    memory_per_fma: float | None = None
    #: Instructions for each 16 bytes of memory that an invocation reads or writes.
    issued_per_16_bytes: float | None = None
    bound: float | None = None
    bound_single: float | None = None
    bound_by: str = ""

    def json(self) -> dict[str, object]:
        """What is known, with few digits."""
        known = {name: value for name, value in asdict(self).items() if value not in (None, "")}
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in known.items()}


class Region(NamedTuple):
    """A part of a pipeline's code that runs again and again: a loop, or everything."""

    pipeline: Pipeline
    counts: Counts
    loops: bool

    def arithmetic(self) -> float:
        """Its multiply-adds, those of matrix units by the time that they take."""
        return self.counts["fma"] + self.counts["fma16"] / 2 + self.counts["matrix_fma"] / 64

    def traffic(self) -> tuple[int, int]:
        """Its bytes of memory, and its instructions."""
        return self.counts["memory_bytes"], self.counts["issued"]


def regions(pipeline: Pipeline, reader: Reader) -> Iterator[Region]:
    """The innermost loops of a pipeline; all of it, if it has none that does anything."""
    blocks = reader.blocks(pipeline.listing)
    useful = [
        Region(pipeline, counts, loops=True)
        for counts in (reader.total(loop) for loop in hot_loops(blocks, reader))
        if does_work(counts)
    ]
    whole = ((block, 1) for block in blocks)
    yield from useful or [Region(pipeline, reader.total(whole), loops=False)]


def does_work(counts: Counts) -> bool:
    """Whether a loop computes with operands or moves them, and does not only search or copy."""
    return any(counts[name] for name in ("fma", "fma16", "matrix", "loads", "stores", "lds_loads"))


def hot(pipelines: Iterable[Pipeline], reader: Reader, computes: bool) -> Region | None:
    """The region with most arithmetic, or with most bytes of memory."""
    found = [region for pipeline in pipelines for region in regions(pipeline, reader)]
    by_bytes = [region for region in found if region.counts["memory_bytes"]]
    if computes:
        return max(found, key=Region.arithmetic, default=None)
    return max(by_bytes, key=Region.traffic, default=None)


def describe(limits: Limits, region: Region, vendor: Vendor, model: Model) -> None:
    """Fills in what a region says of a row."""
    pipeline, counts = region.pipeline, region.counts
    limits.kernel = pipeline.label
    limits.registers = pipeline.number(vendor.registers)
    limits.occupancy = pipeline.number(vendor.occupancy)
    limits.spills = pipeline.number(vendor.spills)
    limits.lanes = pipeline.number("Subgroup")
    limits.loops = region.loops
    limits.counts = {name: value for name, value in sorted(counts.items()) if value}
    fma = counts["fma"] + counts["fma16"]
    if fma:
        limits.lds_per_fma = counts["lds_bytes"] / fma
        limits.memory_per_fma = counts["memory_bytes"] / fma
    if counts["memory_bytes"]:
        limits.issued_per_16_bytes = counts["issued"] * 16 / counts["memory_bytes"]
    if limits.computes:
        limits.bound, limits.bound_by, limits.bound_single = model(counts, limits.lanes)


@dataclass
class Enqueued:
    """A row that the program has enqueued: what a call does, and the pipelines that it needed."""

    row: str
    #: With candidates: the class of its contraction, and the candidate with the estimate's figures.
    asked: str = ""
    candidate: str = ""
    pipelines: list[Pipeline] = field(default_factory=list)
    problem: str = ""
    flops: float = 0.0
    moved: float = 0.0
    dispatches: int = 0


def enqueued(lines: Iterable[str]) -> Iterator[Enqueued]:
    """The rows in the output of `kernels --once` behind the layer that lists pipelines."""
    # The device that the program opens first is of no row.
    row = Enqueued("")
    text: list[str] = []
    for line in lines:
        if not line.startswith("@@ "):
            text.append(line)
            continue
        what, _, rest = line.rstrip("\n")[3:].partition(" ")
        if what == "row":
            row = Enqueued(rest)
        elif what == "asked":
            row = Enqueued(row.row, rest)
        elif what == "candidate":
            row = Enqueued(row.row, row.asked, rest)
        elif what == "pipeline":
            row.pipelines.append(Pipeline(rest))
        elif what == "statistic":
            name, _, value = rest.rpartition(": ")
            row.pipelines[-1].statistics[name] = value
        elif what == "listed":
            # Without a listing of its own, a driver's debug output came before the pipeline.
            row.pipelines[-1].listing = "".join(text)
        elif what == "failed":
            row.problem = rest
            yield row
        elif what == "done":
            row.flops, row.moved, dispatches = map(float, rest.split())
            row.dispatches = int(dispatches)
            row.pipelines = [p for p in row.pipelines if not p.label.startswith(FOREIGN)]
            yield row
        if what in ("row", "candidate", "listing", "listed"):
            text = []


def limits_of(row: Enqueued, chip: str, mesa: str) -> Limits:
    """What limits a row on a chip."""
    vendor = CHIPS[chip].vendor
    limits = Limits(chip, row.row, mesa, problem=row.problem, dispatches=row.dispatches)
    limits.computes = row.flops > OPERATIONS_A_BYTE * row.moved
    # A recurrent layer's steps, not the product in front of them.
    name = row.row.partition(": ")[2].split()[0]
    own = [p for p in row.pipelines if p.label.split()[0] == name] or row.pipelines
    region = hot(own, READERS[vendor.driver], limits.computes)
    if region and not row.problem:
        describe(limits, region, vendor, MODELS[chip])
    return limits


def keep(folder: Path, chip: str, number: int, row: Enqueued) -> None:
    """Writes a row's listings into a file."""
    parts = [f"{p.label}\n{p.statistics}\n{p.listing}" for p in row.pipelines]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{chip}-{number}.txt").write_text("\n\n".join([row.row, *parts]))


def environment(root: Path, chip: str) -> dict[str, str]:
    """The variables of a process that lists pipelines of a chip."""
    found = {
        **chips.environment(root, CHIPS[chip]),
        **layers.behind_faults(root / "listings"),
        "FAULT_LAYER_LISTINGS": "listings",
        # Nothing executes, so the library cannot find out how these GPUs convert.
        "TF_WGPU_NATIVE_FLOAT16": "on",
    }
    if CHIPS[chip].vendor is chips.APPLE:
        found["AGX_MESA_DEBUG"] = "shaders"
    return found


def names(program: Path, filters: list[str]) -> list[str]:
    """The rows that the filters choose, in the program's order."""
    command = [program, "--list", "--batch", "64", *filters]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return listed.stdout.splitlines()


def run(
    command: list[str | Path],
    variables: dict[str, str],
    wanted: list[str],
    core: int,
) -> Iterator[Enqueued]:
    """Runs `kernels --once` or `--candidates` on a chip with the wanted rows. It gets one core, so
    that one thread compiles at a time, and debug outputs do not mix. Intel's shim loses the device
    after some rows; then another process begins with the row that failed. A crash costs its row.
    """
    rest = list(wanted)
    started = []
    while rest:
        filters = [name.replace(": ", " ", 1) for name in rest]
        process = subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *command, *filters],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        started.append(process)
        assert process.stdout is not None
        first, current = rest[0], ""
        for row in enqueued(process.stdout):
            if "lost" in row.problem and row.row != first:
                # It may take minutes to give back the shim's memory, so nothing waits for it here.
                process.kill()
                break
            # A filter may choose more rows than its own.
            if row.row in rest:
                rest = rest[rest.index(row.row) + 1 :]
                current = row.row
            if row.row == current:
                yield row
        else:
            if process.wait() >= 0 or not rest:
                break
            # A signal: the compiler crashed.
            yield Enqueued(rest.pop(0), problem="the compiler ended the process")
    for process in started:
        process.communicate()


def limits(
    command: list[str | Path],
    variables: dict[str, str],
    wanted: list[str],
    core: int,
    chip: str,
    mesa: str,
    listings: Path | None,
) -> list[Limits]:
    """What limits the wanted rows on a chip. If `listings` is a folder, their listings go there."""
    found = []
    for number, row in enumerate(run(command, variables, wanted, core)):
        if listings:
            keep(listings, chip, number, row)
        found.append(limits_of(row, chip, mesa))
    if not found:
        raise SystemExit(f"limits: {chip}: the program enqueued no row")
    return found
