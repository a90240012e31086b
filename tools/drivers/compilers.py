"""Real compilers without their GPUs: every shader variant is compiled by one, and its reports are
counted.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import intel
from fetch import LIBRARIES, manifest

#: GPUs whose compiler is Mesa's ACO, by their names in the drm shim.
AMD = ("polaris10", "vega10", "navi10", "navi21", "navi31", "gfx1150")
#: GPUs of Intel, by their names in the shim.
INTEL = ("skl", "tgl", "dg2", "bmg")
#: The lines that are read from the drivers' text: our own, statistics, and perhaps the reason why a
#: process ended.
LINES = r"^@@ |SIMD[0-9]+ shader|^[A-Za-z ]+: +[0-9]+$|rror|ssert|panicked|compile: "
#: The largest share of variants that may be the same program as another one.
MOST_REPEATED = 0.05
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
    #: Registers spilled to memory.
    spills: int = 0
    #: The number of scalar registers that AMD's compiler keeps in lanes of vector registers.
    scalars: int = 0
    #: Whether the driver had compiled the same program for another variant, and reports nothing.
    repeated: bool = False
    #: Waves that a SIMD holds (AMD), or the SIMD width (Intel).
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


def environment(root: Path, target: str) -> dict[str, str]:
    """The variables that make the Vulkan loader find a target's driver, without access to a GPU."""
    mesa = root / "mesa" / LIBRARIES
    found = os.environ | {
        "LD_LIBRARY_PATH": str(mesa),
        "MESA_SHADER_CACHE_DISABLE": "1",
        "XDG_RUNTIME_DIR": str(root),
        # A shim answers the calls of the C library in place of the kernel.
        "TF_WGPU_DRIVER_SHIELD": "off",
        "TF_WGPU_CACHE": "off",
        "TF_WGPU_AUTOTUNE": "off",
        "TF_WGPU_COOPERATIVE_MATRIX": "1",
    }
    if target in AMD:
        return found | {
            "VK_DRIVER_FILES": str(manifest(root, "radeon", mesa / "libvulkan_radeon.so")),
            "LD_PRELOAD": str(mesa / "libamdgpu_noop_drm_shim.so"),
            "AMDGPU_GPU_ID": target,
            "RADV_DEBUG": "shaderstats",
        }
    if target in INTEL:
        shim = intel.build(root)
        return found | {
            "VK_DRIVER_FILES": str(manifest(root, "intel", mesa / "libvulkan_intel.so")),
            "LD_PRELOAD": str(shim),
            "INTEL_STUB_GPU_PLATFORM": target,
            "INTEL_DEBUG": "cs",
        }
    raise SystemExit(f"drivers: no compiler {target}; there are {', '.join(AMD + INTEL)}")


def read_amd(variant: Variant, line: str) -> None:
    """Reads a line of RADV's statistics."""
    found = re.match(r"\s*([\w ()/-]+?):\s+(\d+)", line)
    if not found:
        return
    name, value = found[1].lower(), int(found[2])
    if name == "spilled vgprs":
        variant.spills = value
    elif name == "spilled sgprs":
        variant.scalars = value
    elif name == "vgprs":
        variant.registers = value
    elif name.startswith("lds size"):
        variant.shared = value
    elif name in ("subgroups per simd", "max waves"):
        variant.occupancy = value


def read_intel(variant: Variant, line: str) -> None:
    """Reads a line of ANV's debug text; the last shader of a variant is the one that runs."""
    found = re.search(r"SIMD(\d+) shader: .*?(\d+):(\d+) spills:fills", line)
    if found:
        variant.occupancy, variant.spills = int(found[1]), int(found[2])


def compile_part(root: Path, program: Path, target: str, part: list[str]) -> Result:
    """Compiles the variants that the options `part` choose, in processes one after the other. A
    variant that ends its process, or does not end in time, counts as refused.
    """
    read = read_amd if target in AMD else read_intel
    result = Result(target)
    total, start = None, 0
    while total is None or start < total:
        process = subprocess.Popen(
            [str(program), *part, "--start", str(start)],
            env=environment(root, target),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        # Intel's driver prints whole programs. Without grep, Python would read each line.
        lines = subprocess.Popen(
            ["grep", "--text", "--line-buffered", "--extended-regexp", LINES],
            stdin=process.stderr,
            stdout=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        assert process.stderr is not None
        assert lines.stdout is not None
        process.stderr.close()
        current: Variant | None = None
        last = ""
        watch = threading.Timer(PATIENCE, process.kill)
        for line in map(str.rstrip, lines.stdout):
            if not line.startswith("@@ "):
                last = line or last
                if current:
                    read(current, line)
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
            elif current and what == "end":
                current.seconds = float(rest)
                current.repeated = current.occupancy is None
            elif current and what == "refused":
                current.refused = rest
            elif current and what == "skipped":
                current.skipped = True
            elif current and what == "other":
                current.other = True
            if what in ("end", "refused", "skipped"):
                current = None
        watch.cancel()
        lines.wait()
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
    parts = [
        ["--every", str(every * jobs), "--offset", str(every * job), *options]
        for job in range(jobs)
    ]
    environment(root, target)  # Builds missing parts before threads need them.
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda part: compile_part(root, program, target, part), parts))
    problems = [part.problem for part in found if part.problem]
    variants = [variant for part in found for variant in part.variants]
    if sum(v.repeated for v in variants) > MOST_REPEATED * len(variants):
        problems.append("the driver tells too little: its statistics are not understood")
    return Result(target, found[0].adapter, problems[0] if problems else "", variants)
