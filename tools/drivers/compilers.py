"""Real compilers without their GPUs: every shader variant goes through one, and what it says of each
is counted.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fetch import LIBRARIES, manifest

#: GPUs whose compiler is Mesa's ACO, by the names of its drm shim.
AMD = ("polaris10", "vega10", "navi10", "navi21", "navi31", "gfx1150")
#: GPUs of Intel, by the names of its shim.
INTEL = ("skl", "tgl", "dg2", "bmg")
#: Seconds for one variant, after which the compiler counts as hanging.
PATIENCE = 300


@dataclass
class Variant:
    """What a compiler made of one variant."""

    family: str
    label: str
    seconds: float = 0.0
    refused: str = ""
    skipped: bool = False
    #: Registers spilled to memory, of vectors and of scalars.
    spills: int = 0
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
    """The variables by which the Vulkan loader finds the driver of a target, and no GPU is asked."""
    mesa = root / "mesa" / LIBRARIES
    found = os.environ | {
        "LD_LIBRARY_PATH": str(mesa),
        "MESA_SHADER_CACHE_DISABLE": "1",
        "XDG_RUNTIME_DIR": str(root),
        "TF_WGPU_CACHE": "off",
        "TF_WGPU_TUNING": "off",
    }
    if target in AMD:
        return found | {
            "VK_DRIVER_FILES": str(manifest(root, "radeon", mesa / "libvulkan_radeon.so")),
            "LD_PRELOAD": str(mesa / "libamdgpu_noop_drm_shim.so"),
            "AMDGPU_GPU_ID": target,
            "RADV_DEBUG": "shaderstats",
        }
    if target in INTEL:
        return found | {
            "VK_DRIVER_FILES": str(manifest(root, "intel", mesa / "libvulkan_intel.so")),
            "LD_PRELOAD": str(root / "intel" / "libintel_noop_drm_shim.so"),
            "INTEL_STUB_GPU_PLATFORM": target,
            "INTEL_DEBUG": "cs",
        }
    raise SystemExit(f"drivers: no compiler {target}; there are {', '.join(AMD + INTEL)}")


def read_amd(variant: Variant, line: str) -> None:
    """A line of RADV's statistics."""
    found = re.match(r"\s*([\w ()/-]+?):\s+(\d+)", line)
    if not found:
        return
    name, value = found[1].lower(), int(found[2])
    if name in ("spilled vgprs", "spilled sgprs"):
        variant.spills += value
    elif name == "vgprs":
        variant.registers = value
    elif name.startswith("lds size"):
        variant.shared = value
    elif name in ("subgroups per simd", "max waves"):
        variant.occupancy = value


def read_intel(variant: Variant, line: str) -> None:
    """A line of ANV's debug text; the last shader of a variant is the one that runs."""
    found = re.search(r"SIMD(\d+) shader: .*?(\d+):(\d+) spills:fills", line)
    if found:
        variant.occupancy, variant.spills = int(found[1]), int(found[2])


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """What a process writes, without ends of lines."""
    assert process.stderr is not None
    for line in process.stderr:
        yield line.rstrip("\n")


def compile_all(root: Path, program: Path, target: str, every: int) -> Result:
    """Compiles each `every`-th variant. A variant that ends the process is one refused."""
    read = read_amd if target in AMD else read_intel
    result = Result(target)
    total, start = None, 0
    while total is None or start < total:
        command = [str(program), "--every", str(every), "--start", str(start)]
        process = subprocess.Popen(
            command,
            env=environment(root, target),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        current: Variant | None = None
        last = ""
        for line in lines(process):
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
                number, family, label = rest.split(" ", 2)
                start = int(number) + 1
                current = Variant(family, label)
                result.variants.append(current)
            elif current and what == "end":
                current.seconds = float(rest)
            elif current and what == "refused":
                current.refused = rest
            elif current and what == "skipped":
                current.skipped = True
            if what in ("end", "refused", "skipped"):
                current = None
        code = process.wait()
        if total is None:
            result.problem = last or f"exit code {code}"
            return result
        if current:
            current.refused = f"the compiler ended the process ({code}): {last}"
        elif code == 0:
            break
    return result
