"""licenses: what a wheel tells of the crates in its library.

Writes THIRD-PARTY-LICENSES.txt (by cargo-about, with the texts) and tensorflow-wgpu.cdx.json (by
cargo-cyclonedx, a CycloneDX SBOM) from Cargo.lock, for the libraries of all systems. Both are
committed, so that a wheel can be built without these tools and without a network.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Where the tools are installed; the first time takes some minutes.
TOOLS = ROOT / "target/licenses"
#: Names, versions and features.
PROGRAMS = (("cargo-about", "0.9.3", ["--features", "cli"]), ("cargo-cyclonedx", "0.5.9", []))
LICENSES = ROOT / "THIRD-PARTY-LICENSES.txt"
SBOM = ROOT / "tensorflow-wgpu.cdx.json"


def run(*command: str | Path, **variables: str) -> None:
    """Runs a program in the root."""
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)


def install() -> None:
    """Installs the tools that are missing."""
    for name, version, features in PROGRAMS:
        command = ["cargo", "install", "--locked", "--quiet", "--root", str(TOOLS), *features]
        run(*command, f"{name}@{version}")


def write_licenses() -> None:
    """Writes the licences. Texts come only from the crates' packages."""
    about = [TOOLS / "bin/cargo-about", "about", "generate", "--locked", "--offline", "--fail"]
    run(*about, "--config", HERE / "about.toml", "--output-file", LICENSES, HERE / "about.hbs")


def write_sbom() -> None:
    """Writes the SBOM, without the time and this machine's paths, so that it depends only on
    Cargo.lock.
    """
    cyclonedx = [TOOLS / "bin/cargo-cyclonedx", "cyclonedx", "--format", "json", "--all"]
    cyclonedx += ["--target", "all", "--no-build-deps", "--spec-version", "1.5"]
    run(*cyclonedx, "--override-filename", SBOM.stem, SOURCE_DATE_EPOCH="0")
    text = SBOM.read_text(encoding="utf-8")
    SBOM.write_text(text.replace(f"{ROOT.as_uri()}#", "file:///tensorflow-wgpu#"), encoding="utf-8")
    # cargo-cyclonedx writes one for each package of the workspace.
    (ROOT / "tests/fault_layer" / SBOM.name).unlink(missing_ok=True)


if __name__ == "__main__":
    install()
    run("cargo", "fetch", "--locked")
    write_licenses()
    write_sbom()
