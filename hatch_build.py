"""Builds the Rust library and puts it into the wheel's top-level folder `tensorflow-plugins`.

Needs cargo and nothing else. Environment variables choose what is built:

- `TF_WGPU_CARGO_PROFILE`: the cargo profile (default `release`); tests use `dev` so that everything
  is compiled once.
- `TF_WGPU_TARGET`: what it is built for, as cargo names it (default: this machine). A glibc behind
  the name, `aarch64-unknown-linux-gnu.2.28`, needs cargo-zigbuild, and makes a manylinux wheel.
- `TF_WGPU_CARGO_COMMAND`: the cargo command (default `build`; or `zigbuild`).
- `TF_WGPU_DXC`: Microsoft's `dxcompiler.dll`, which goes into the wheel with its licence.

`make wheels` sets the last three; tools/wheels has the linkers, and checks what comes out.

It also writes the package's description: README.md with links that lead somewhere from PyPI.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Where the shader compiler for DX12 lies in a wheel (`tools/wheels/dxcompiler.py`).
DXC = "tensorflow_wgpu/dxcompiler.dll"
#: The name of the crate's library target.
LIBRARY = "tensorflow_wgpu"
#: A link or an image of Markdown, and its target if that is a file of the repository.
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\[\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


class DescriptionHook(MetadataHookInterface):
    """README.md as the package's description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets `readme`. The repository's address is that of `[project.urls]`, or the one on which
        GitHub builds.
        """
        repository = metadata.get("urls", {}).get("Source")
        if not repository and "GITHUB_REPOSITORY" in os.environ:
            repository = f"https://github.com/{os.environ['GITHUB_REPOSITORY']}"
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": description(text, repository),
        }


def description(readme: str, repository: str | None) -> str:
    """A README whose links to files are addresses in the repository. Without a repository links
    become their words, and images vanish.
    """

    def absolute(match: re.Match[str]) -> str:
        if not repository:
            return "" if match["image"] else match["text"]
        view = "raw" if match["image"] else "blob"
        target = f"{repository.rstrip('/')}/{view}/main/{match['path']}"
        return f"{match['image']}[{match['text']}]({target})"

    return LINK.sub(absolute, readme)


class CargoBuildHook(BuildHookInterface):
    """The library of this crate in a platform wheel that serves every Python version."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the library and adds it to the wheel."""
        target = os.environ.get("TF_WGPU_TARGET") or None
        tag = target_tag(target) if target else platform_tag()
        library = self.build(target)
        if target is None and profile() != "dev":
            library = without_debug_information(library)
        force_include = "force_include_editable" if version == "editable" else "force_include"
        build_data[force_include] = {str(library): f"tensorflow-plugins/{library.name}"}
        if dxc := os.environ.get("TF_WGPU_DXC"):
            included = {dxc: DXC, "tools/wheels/dxcompiler.LICENSE.txt": f"{DXC}.LICENSE.txt"}
            build_data[force_include] |= included
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"

    def build(self, target: str | None) -> Path:
        """Runs cargo and returns the path of the library."""
        cargo = shutil.which("cargo")
        if cargo is None:
            raise RuntimeError(
                "cargo was not found: install Rust from https://rustup.rs and build again"
            )
        verb = os.environ.get("TF_WGPU_CARGO_COMMAND") or "build"
        command = [cargo, verb, "--lib", "--locked", "--profile", profile()]
        if target:
            command += ["--target", target]
        elif profile() == "dev":
            # The examples have the features of the tests' dependencies: what `cargo test` has
            # compiled serves again.
            command.append("--examples")
        # The messages name the file, wherever the target directory is; they go to stdout, the
        # progress to stderr.
        build = subprocess.run(
            [*command, "--message-format", "json-render-diagnostics"],
            cwd=self.root,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if build.returncode != 0:
            raise RuntimeError(
                f"`{' '.join(command)}` failed with exit code {build.returncode}, see above"
            )
        for line in build.stdout.splitlines():
            message = json.loads(line)
            # Other shared libraries are the tests'.
            if message["reason"] == "compiler-artifact" and message["target"]["name"] == LIBRARY:
                libraries = [
                    Path(f) for f in message["filenames"] if f.endswith((".so", ".dylib", ".dll"))
                ]
                if libraries:
                    return libraries[0]
        raise RuntimeError(f"`{' '.join(command)}` built no shared library")


def profile() -> str:
    """The cargo profile."""
    return os.environ.get("TF_WGPU_CARGO_PROFILE") or "release"


def without_debug_information(library: Path) -> Path:
    """A copy of a library for Linux without its debug information, which is three quarters of it
    and goes into a file beside the copy. The names of functions stay, for backtraces; their lines
    come back where that file lies beside the library.

    Elsewhere the linker keeps debug information apart by itself. Without binutils the library
    stays as it is.
    """
    objcopy = shutil.which("objcopy")
    if library.suffix != ".so" or objcopy is None:
        return library
    folder = library.parent / "wheel"
    folder.mkdir(exist_ok=True)
    debug, small = folder / f"{library.name}.debug", folder / library.name
    for command in (
        [objcopy, "--only-keep-debug", str(library), str(debug)],
        [objcopy, "--strip-debug", f"--add-gnu-debuglink={debug}", str(library), str(small)],
    ):
        subprocess.run(command, check=True)
    return small


def platform_tag() -> str:
    """The wheel's platform: this machine's, because cargo builds for it.

    On Linux that is `linux_<machine>` and not `manylinux`, which would promise the C library of
    another distribution.
    """
    name = sysconfig.get_platform()
    macos = re.fullmatch(r"macosx-[\d.]+-(?:universal2|\w+)", name)
    if macos:
        # A universal2 Python still builds for one processor; rustc's own minimum is 11.0 on arm64
        # and 10.12 on x86_64.
        machine = platform.machine()
        name = f"macosx-{'11.0' if machine == 'arm64' else '10.12'}-{machine}"
    return re.sub(r"[-.]", "_", name)


def target_tag(target: str) -> str:
    """The wheel's platform for a target of cargo's.

    For Linux the glibc behind the target's name, which is what the linker was given; for macOS
    `MACOSX_DEPLOYMENT_TARGET`, which rustc writes into the library, or rustc's own minimum.
    """
    machine, _, system = target.partition("-")
    linux = re.fullmatch(r"unknown-linux-gnu\.(\d+)\.(\d+)", system)
    if linux:
        return f"manylinux_{linux[1]}_{linux[2]}_{machine}"
    if system == "apple-darwin":
        oldest = os.environ.get("MACOSX_DEPLOYMENT_TARGET") or (
            "11.0" if machine == "aarch64" else "10.12"
        )
        major, minor = [*oldest.split("."), "0"][:2]
        processor = "arm64" if machine == "aarch64" else machine
        return f"macosx_{major}_{minor}_{processor}"
    if system in ("pc-windows-gnu", "pc-windows-msvc"):
        processors = {"x86_64": "win_amd64", "aarch64": "win_arm64"}
        if machine in processors:
            return processors[machine]
    raise RuntimeError(
        f"TF_WGPU_TARGET={target} has no platform tag; a target for Linux ends with its glibc, as "
        "x86_64-unknown-linux-gnu.2.28"
    )
