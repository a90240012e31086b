"""The shim that replaces Intel's kernel driver. No package has it: it is built from Mesa's source
package, with tools that are unpacked beside it. This takes half a minute of processor time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fetch

#: The packages that the build needs besides a C compiler and Python.
PACKAGES = {
    "bison": "",
    "flex": "",
    "m4": "",
    "libdrm-dev": "backports",
    "libdrm2": "backports",
    "libdrm-amdgpu1": "backports",
    "libdrm-intel1": "backports",
    "libpciaccess-dev": "",
    "libpciaccess0": "",
    "libexpat1-dev": "",
    "libexpat1": "",
    "zlib1g-dev": "",
    "zlib1g": "",
}
PYTHON = ("meson", "ninja", "mako", "pyyaml", "packaging")
TARGET = "src/intel/tools/libintel_noop_drm_shim.so"
#: Builds only the shim, without optimization.
OPTIONS = (
    "-Dbuildtype=plain",
    "-Dtools=drm-shim,intel",
    "-Dvulkan-drivers=",
    "-Dgallium-drivers=",
    "-Dplatforms=",
    "-Dopengl=false",
    "-Dllvm=disabled",
    "-Dglx=disabled",
    "-Degl=disabled",
    "-Dgbm=disabled",
    "-Dgles1=disabled",
    "-Dgles2=disabled",
    "-Dshared-glapi=disabled",
    "-Dzstd=disabled",
    "-Dvalgrind=disabled",
    "-Dlibunwind=disabled",
    "-Dxmlconfig=disabled",
)


def relink(tools: Path) -> None:
    """Points absolute links of packages into the folder where they were unpacked."""
    for link in (tools / fetch.LIBRARIES).glob("*.so"):
        aim = link.readlink() if link.is_symlink() else Path()
        if aim.is_absolute() and not aim.is_relative_to(tools):
            link.unlink()
            link.symlink_to(tools / aim.relative_to("/"))


def build(root: Path) -> Path:
    """The shim, which is built if it is missing."""
    shim = root / "intel" / Path(TARGET).name
    if shim.exists():
        return shim
    work = root / "intel.work"
    shutil.rmtree(work, ignore_errors=True)
    (work / "packages").mkdir(parents=True)
    apt = fetch.Apt(root / "apt")
    apt.update(sources=True)
    tools = work / "tools"
    apt.download(work / "packages", PACKAGES)
    for package in (work / "packages").glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, tools], check=True)
    relink(tools)
    apt.source(work, "mesa", "backports")
    (archive,) = work.glob("mesa_*.orig.tar.*[!c]")
    (work / "mesa").mkdir()
    subprocess.run(
        ["tar", "--extract", "--file", archive, "--strip-components=1"],
        cwd=work / "mesa",
        check=True,
    )
    subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)
    programs = work / "venv/bin"
    subprocess.run([programs / "pip", "install", "--quiet", *PYTHON], check=True)
    environment = os.environ | {
        "PATH": f"{programs}:{tools / 'usr/bin'}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(tools / fetch.LIBRARIES),
        "BISON_PKGDATADIR": str(tools / "usr/share/bison"),
        "M4": str(tools / "usr/bin/m4"),
        "PKG_CONFIG_LIBDIR": str(tools / fetch.LIBRARIES / "pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(tools),
    }
    for command in (
        ["meson", "setup", *OPTIONS, work / "build", work / "mesa"],
        ["ninja", "-C", work / "build", TARGET],
    ):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"drivers: {command[0]} failed:\n{done.stdout[-4000:]}")
    shim.parent.mkdir(exist_ok=True)
    new = shim.with_suffix(".new")
    shutil.copy(work / "build" / TARGET, new)
    new.rename(shim)
    shutil.rmtree(work)
    return shim
