"""Real compilers without their GPUs: every shader variant is compiled by one, and its statistics
are counted. The layer of tests/fault_layer asks the driver for them.
"""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import chips
import layers
from chips import CHIPS, Vendor

#: Seconds for one variant, after which the compiler counts as hanging.
PATIENCE = 300


@dataclass
class Variant:
    """A compiler's result for one variant."""

    family: str
    label: str
    seconds: float = 0.0
    refused: str = ""
    skipped: bool = False
    #: Whether no kernel chooses it on this kind of adapters.
    other: bool = False
    #: Registers spilled to memory, or instructions that spill them.
    spills: int = 0
    #: The number of scalar registers that AMD's compiler keeps in lanes of vector registers.
    scalars: int = 0
    #: What a part of the GPU holds at once, in the vendor's unit.
    occupancy: int | None = None
    registers: int | None = None
    #: Bytes of workgroup memory.
    shared: int | None = None


@dataclass
class Result:
    """All variants on one adapter."""

    target: str
    adapter: str = ""
    problem: str = ""
    variants: list[Variant] = field(default_factory=list)


def read(vendor: Vendor, variant: Variant, statistic: str) -> None:
    """Reads a statistic of a variant's pipeline."""
    name, _, value = statistic.rpartition(": ")
    if name == vendor.spills:
        variant.spills = int(value)
    elif name == vendor.scalars:
        variant.scalars = int(value)
    elif name == vendor.registers:
        variant.registers = int(value)
    elif name == vendor.shared:
        variant.shared = int(value)
    elif name == vendor.occupancy:
        variant.occupancy = int(value)


def compile_part(
    command: list[str | Path], environment: dict[str, str], target: str, part: list[str]
) -> Result:
    """Compiles the variants that the options `part` choose, in processes one after the other. A
    variant that ends its process, or does not end in time, counts as refused.
    """
    vendor = CHIPS[target].vendor
    result = Result(target)
    total, start = None, 0
    while total is None or start < total:
        process = subprocess.Popen(
            [*command, *part, "--start", str(start)],
            env=environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        assert process.stderr is not None
        current: Variant | None = None
        last = ""
        watch = threading.Timer(PATIENCE, process.kill)
        for line in map(str.rstrip, process.stderr):
            if not line.startswith("@@ "):
                last = line or last
                continue
            what, _, rest = line[3:].partition(" ")
            if what == "adapter":
                result.adapter = rest
            elif what == "variants":
                total = int(rest)
            elif what == "begin":
                watch.cancel()
                watch = threading.Timer(PATIENCE, process.kill)
                watch.start()
                number, family, label = rest.split(" ", 2)
                start = int(number) + 1
                current = Variant(family, label)
                result.variants.append(current)
            elif current and what == "statistic":
                read(vendor, current, rest)
            elif current and what == "end":
                current.seconds = float(rest)
            elif current and what == "refused":
                current.refused = rest
            elif current and what == "skipped":
                current.skipped = True
            elif current and what == "other":
                current.other = True
            if what in ("end", "refused", "skipped"):
                current = None
        watch.cancel()
        code = process.wait()
        if total is None:
            result.problem = last or f"exit code {code}"
            return result
        if current:
            current.refused = f"the compiler ended the process ({code}): {last}"
        elif code == 0:
            break
        elif start < total:
            result.problem = f"exit code {code} between variants: {last}"
            return result
    return result


def compile_all(
    target: str, root: Path, program: Path, every: int, jobs: int, options: list[str]
) -> Result:
    """Compiles each `every`-th variant of those that `options` choose, `jobs` at a time."""
    chip = CHIPS[target]
    command = [*chips.starter(root, chip), program]
    environment = {
        **chips.environment(root, chip),
        **layers.behind_faults(root / "listings"),
        "FAULT_LAYER_LISTINGS": "statistics",
    }
    parts = [
        ["--every", str(every * jobs), "--offset", str(every * job), *options]
        for job in range(jobs)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda part: compile_part(command, environment, target, part), parts))
    problems = [part.problem for part in found if part.problem]
    variants = [variant for part in found for variant in part.variants]
    if any(v.occupancy is None for v in variants if not (v.refused or v.skipped)):
        problems.append("the driver tells too little: its statistics are not understood")
    return Result(target, found[0].adapter, problems[0] if problems else "", variants)
