"""Drivers and compilers from Debian's packages, unpacked into a separate folder: the system is not
changed, and no rights are needed.
"""

from __future__ import annotations

import gzip
import json
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

#: Packages by the folder that they are unpacked into, each with the suite that has it.
PACKAGES = {
    "mesa": {
        "mesa-vulkan-drivers": "backports",
        "libdrm2": "backports",
        "libdrm-amdgpu1": "backports",
        "libllvm15": "",
    },
    "chromium": {"chromium-common": "security"},
}
LIBRARIES = "usr/lib/x86_64-linux-gnu"
#: The folder of Debian's newest Mesa; its packages, which are fetched with all dependencies; and
#: the loader that starts programs with their libraries, including the C library.
NEWEST = "sid"
NEWEST_PACKAGES = ("mesa-vulkan-drivers", "mesa-drm-shim", "libvulkan1")
NEWEST_LOADER = "usr/lib64/ld-linux-x86-64.so.2"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def is_supported() -> bool:
    """Whether the packages are for this machine's system."""
    release = Path("/etc/os-release")
    text = release.read_text() if release.exists() else ""
    debian = re.search(r"^ID=debian$", text, re.M) and re.search(r'^VERSION_ID="12"$', text, re.M)
    return bool(debian) and platform.machine() == "x86_64" and bool(shutil.which("apt-get"))


class Repository(NamedTuple):
    """The address from which apt gets a suite."""

    uri: str
    suite: str


def repositories() -> list[Repository]:
    """The repositories of Debian's main archive and of its security updates that the machine's apt
    knows.
    """
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {tuple(line.split()) for line in listed.splitlines()}
    known = [Repository(uri, suite) for uri, suite, component in found if component == "main"]
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.M)
    if release is None or release[1] != "bookworm":
        raise SystemExit("drivers: the packages are those of Debian 12; see docs/DRIVERS.md")
    plain = [repository for repository in known if repository.suite == release[1]]
    if not plain:
        raise SystemExit("drivers: apt knows no repository of this release")
    backports = Repository(plain[0].uri, f"{release[1]}-backports")
    return sorted({*known, backports})


class Apt:
    """apt-get with its own lists and cache, which also reads the backports."""

    def __init__(self, folder: Path) -> None:
        """Begins with the files in `folder` from an earlier run."""
        self.sources = folder / "sources.list"
        lists, cache = folder / "lists", folder / "cache"
        for needed in (lists / "partial", cache / "archives/partial"):
            needed.mkdir(parents=True, exist_ok=True)
        self.options = [
            f"-oDir::Etc::SourceList={self.sources}",
            "-oDir::Etc::SourceParts=/dev/null",
            f"-oDir::State::Lists={lists}",
            f"-oDir::Cache={cache}",
            "-oAPT::Sandbox::User=",
            "-oAcquire::Retries=3",
            "-qq",
        ]

    def update(self, sources: bool = False) -> None:
        """Reads the lists of packages and, if `sources`, of source packages."""
        kinds = ["deb", "deb-src"] if sources else ["deb"]
        lines = (f"{kind} {uri} {suite} main\n" for kind in kinds for uri, suite in repositories())
        self.sources.write_text("".join(lines))
        subprocess.run(["apt-get", *self.options, "update"], check=True)

    def download(self, folder: Path, packages: dict[str, str]) -> None:
        """Downloads packages. A package with a suite comes from that suite."""
        names = [
            f"{name}/bookworm-{suite}" if suite == "backports" else name
            for name, suite in packages.items()
        ]
        subprocess.run(["apt-get", *self.options, "download", *names], cwd=folder, check=True)

    def source(self, folder: Path, package: str, suite: str) -> None:
        """Downloads a source package's original archive; a mirror may have no other part."""
        command = ["apt-get", *self.options, "source", "--download-only", "--tar-only"]
        command += ["-t", f"bookworm-{suite}", package]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if not list(folder.glob(f"{package}_*.orig.tar.*")):
            raise SystemExit(f"drivers: apt-get source {package} failed:\n{done.stderr}")


def shim(driver: str) -> str:
    """The file name of the library that stands for a driver of the kernel."""
    return f"lib{driver}_noop_drm_shim.so"


def fetch_newest(root: Path) -> None:
    """Fetches Debian's newest Mesa in the same way, with the shims that stand for kernels' drivers.
    About 400 MB; its version is whatever Debian has.
    """
    if (root / NEWEST / LIBRARIES / shim("nouveau")).exists():
        return
    apt = Apt(root / "apt-newest")
    uri = next(r.uri for r in repositories() if r.suite == "bookworm")
    apt.sources.write_text(f"deb [signed-by={KEYRING}] {uri} {NEWEST} main\n")
    # No package counts as installed, so that all are fetched.
    options = [*apt.options, "-oDir::State::status=/dev/null", "-oDebug::NoLocking=1"]
    subprocess.run(["apt-get", *options, "update"], check=True)
    install = ["install", "--download-only", "--no-install-recommends", "--yes"]
    subprocess.run(["apt-get", *options, *install, *NEWEST_PACKAGES], check=True)
    unpacked = root / f"{NEWEST}.unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    packages = list((root / "apt-newest/cache/archives").glob("*.deb"))
    for package in packages:
        subprocess.run(["dpkg", "-x", package, unpacked], check=True)
        package.unlink()
    # This comes last, so that the folder is complete.
    shutil.rmtree(root / NEWEST, ignore_errors=True)
    unpacked.rename(root / NEWEST)


def newest_version(root: Path) -> str:
    """The version of the newest Mesa that was fetched."""
    changes = root / NEWEST / "usr/share/doc/mesa-vulkan-drivers/changelog.Debian.gz"
    with gzip.open(changes, "rt") as text:
        return re.search(r"\((.*?)\)", text.readline())[1]


def fetch(root: Path) -> None:
    """Downloads and unpacks the packages that are missing in `root`."""
    missing = [name for name in PACKAGES if not (root / name).exists()]
    if not missing:
        return
    apt = Apt(root / "apt")
    apt.update()
    for name in missing:
        packed, unpacked = root / f"{name}.packages", root / f"{name}.unpacked"
        for folder in (packed, unpacked):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        apt.download(packed, PACKAGES[name])
        for package in packed.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, unpacked], check=True)
        shutil.rmtree(packed)
        # This comes last, so that a folder is complete.
        unpacked.rename(root / name)


def manifest(root: Path, name: str, library: Path) -> Path:
    """A driver's manifest for the Vulkan loader, which names the library by its whole path."""
    path = root / f"{name}.json"
    icd = {"library_path": str(library), "api_version": "1.3.0"}
    path.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": icd}))
    return path
