"""Builds the wheel of a system, on any Linux.

hatch_build.py compiles; this module provides the linkers: zig, which includes the C libraries of
Linux in every version and that of macOS, and mingw for Windows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import apple
import dxcompiler
from systems import System

ROOT = Path(__file__).parents[2]
#: The folder for cargo's output for other systems, apart from the tests' so that it can be deleted.
TARGET = ROOT / "target/wheels"
#: The folder for downloads.
CACHE = ROOT / "target/wheels-cache"


def build(system: System, profile: str, folder: Path) -> Path:
    """Puts the system's wheel into `folder` and returns its path."""
    add_target(system.triple)
    if system.linker == "mingw":
        subprocess.run([ROOT / "tools/system-packages", "mingw"], check=True)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"*-{system.tag}.whl"):
        old.unlink()
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, env=environment(system, profile), check=False)
    if done.returncode != 0:
        raise SystemExit(f"wheels: the build for {system.name} failed, see above")
    built = list(folder.glob(f"*-{system.tag}.whl"))
    if len(built) != 1:
        raise SystemExit(f"wheels: the build for {system.name} left {built}")
    return built[0]


def environment(system: System, profile: str) -> dict[str, str]:
    """The environment of hatch_build.py, of cargo and of the linker."""
    variables = {
        **os.environ,
        # cargo-zigbuild and its zig, from the environment of this program.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TF_WGPU_CARGO_PROFILE": profile,
        "TF_WGPU_TARGET": system.target,
        "TF_WGPU_CARGO_COMMAND": "zigbuild" if system.linker == "zig" else "build",
        "CARGO_TARGET_DIR": str(TARGET),
        "CARGO_INCREMENTAL": "0",
        # Function names stay, for backtraces.
        f"CARGO_PROFILE_{profile.upper().replace('-', '_')}_STRIP": "debuginfo",
    }
    if "windows" in system.triple:
        variables["TF_WGPU_DXC"] = str(dxcompiler.fetch(CACHE))
    if "apple" in system.triple:
        variables["SDKROOT"] = str(apple.write_sdk(TARGET / "macos-sdk"))
        variables["MACOSX_DEPLOYMENT_TARGET"] = system.oldest
    return variables


def add_target(triple: str) -> None:
    """Installs Rust's standard library for a target."""
    rustc = subprocess.run(
        ["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True
    )
    if (Path(rustc.stdout.strip()) / "lib/rustlib" / triple / "lib").is_dir():
        return
    if not shutil.which("rustup"):
        raise SystemExit(f"wheels: this Rust has no standard library for {triple}, and no rustup")
    subprocess.run(["rustup", "target", "add", triple], check=True)
