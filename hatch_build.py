"""Builds the Rust library and puts it into the wheel's top-level folder `tensorflow-plugins`.

Needs cargo and nothing else. `TF_WGPU_CARGO_PROFILE` names the cargo profile (default `release`);
tests use `dev` so that everything is compiled once.
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

#: The name of the crate's library target.
LIBRARY = "tensorflow_wgpu"


class CargoBuildHook(BuildHookInterface):
    """The library of this crate in a platform wheel that serves every Python version."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles the library and adds it to the wheel."""
        library = self.build()
        force_include = "force_include_editable" if version == "editable" else "force_include"
        build_data[force_include] = {str(library): f"tensorflow-plugins/{library.name}"}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"

    def build(self) -> Path:
        """Runs cargo and returns the path of the library."""
        cargo = shutil.which("cargo")
        if cargo is None:
            raise RuntimeError(
                "cargo was not found: install Rust from https://rustup.rs and build again"
            )
        profile = os.environ.get("TF_WGPU_CARGO_PROFILE") or "release"
        command = [cargo, "build", "--lib", "--locked", "--profile", profile]
        if profile == "dev":
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
