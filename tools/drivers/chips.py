"""The GPUs whose compilers run here, and how a program is started with one of them: by the loader
of Debian's newest Mesa, with the GPU's Vulkan driver, and with a shim that answers in place of the
kernel's driver. Programs compile for the GPU, and execute nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import fetch
import intel


@dataclass(frozen=True)
class Vendor:
    """A driver of Mesa, with the names of its pipelines' statistics."""

    #: The driver's library, `libvulkan_NAME.so`, and its shim.
    driver: str
    shim: str
    #: The variable that chooses the shim's GPU.
    variable: str
    #: The statistic of occupancy, and its unit.
    occupancy: str
    unit: str
    registers: str
    spills: str
    #: Scalar registers that wait in lanes of vector registers.
    scalars: str = ""
    #: Bytes of workgroup memory.
    shared: str = ""


AMD = Vendor(
    driver="radeon",
    shim="amdgpu",
    variable="AMDGPU_GPU_ID",
    occupancy="Subgroups per SIMD",
    unit="waves",
    registers="VGPRs",
    spills="Spilled VGPRs",
    scalars="Spilled SGPRs",
    shared="LDS size",
)
NVIDIA = Vendor(
    driver="nouveau",
    shim="nouveau",
    variable="NOUVEAU_CHIPSET",
    occupancy="Max warps/SM",
    unit="warps",
    registers="Number of GPRs",
    spills="Spills to memory",
)
INTEL = Vendor(
    driver="intel",
    shim="intel",
    variable="INTEL_STUB_GPU_PLATFORM",
    occupancy="Subgroup",
    unit="lanes",
    registers="Max live registers",
    spills="Spills",
    shared="Workgroup Memory Size",
)
APPLE = Vendor(
    driver="asahi",
    shim="asahi",
    variable="",
    occupancy="Threads",
    unit="threads",
    registers="GPRs",
    spills="Spills",
)
QUALCOMM = Vendor(
    driver="freedreno",
    shim="freedreno",
    variable="FD_GPU_ID",
    occupancy="Max Waves Per Core",
    unit="waves",
    registers="Registers used",
    spills="STP Count",
)


@dataclass(frozen=True)
class Chip:
    """A GPU, by the name that its shim has for it."""

    vendor: Vendor
    name: str = ""


CHIPS = {
    **{
        name: Chip(AMD, name)
        for name in ("polaris10", "vega10", "navi10", "navi21", "navi31", "gfx1150", "gfx1201")
    },
    "turing": Chip(NVIDIA, "164"),
    "ampere": Chip(NVIDIA, "172"),
    "ada": Chip(NVIDIA, "192"),
    "blackwell": Chip(NVIDIA, "1b2"),
    **{name: Chip(INTEL, name) for name in ("skl", "tgl", "dg2", "bmg")},
    "m1": Chip(APPLE),
    "adreno740": Chip(QUALCOMM, "740"),
    "adreno630": Chip(QUALCOMM, "630"),
}


def shim(root: Path, vendor: Vendor) -> Path:
    """A vendor's shim; Intel's is built if it is missing."""
    if vendor is INTEL:
        return intel.build(root)
    return root / fetch.NEWEST / fetch.LIBRARIES / fetch.shim(vendor.shim)


def starter(root: Path, chip: Chip) -> list[str | Path]:
    """The command that starts a program with a chip's driver."""
    newest = root / fetch.NEWEST
    return [
        newest / fetch.NEWEST_LOADER,
        "--library-path",
        newest / fetch.LIBRARIES,
        "--preload",
        shim(root, chip.vendor),
    ]


def environment(root: Path, chip: Chip) -> dict[str, str]:
    """The variables that choose a chip, with all that makes each run the same."""
    vendor = chip.vendor
    library = root / fetch.NEWEST / fetch.LIBRARIES / f"libvulkan_{vendor.driver}.so"
    icd = str(fetch.manifest(root, f"{vendor.driver}-newest", library))
    found = os.environ | {
        "VK_DRIVER_FILES": icd,
        "VK_ICD_FILENAMES": icd,
        "MESA_SHADER_CACHE_DISABLE": "1",
        "XDG_RUNTIME_DIR": str(root),
        # A shim answers the calls of the C library in place of the kernel.
        "TF_WGPU_DRIVER_SHIELD": "off",
        "TF_WGPU_CACHE": "off",
        "TF_WGPU_AUTOTUNE": "off",
        "TF_WGPU_COOPERATIVE_MATRIX": "1",
    }
    return found | ({vendor.variable: chip.name} if vendor.variable else {})
