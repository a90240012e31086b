"""The systems that have a wheel, with the names and the build settings of each wheel."""

from __future__ import annotations

from typing import NamedTuple


class System(NamedTuple):
    """One wheel."""

    #: Its name on the command line.
    name: str
    #: Its name for cargo.
    triple: str
    #: The wheel's platform tag, which hatch_build.py derives from the target.
    tag: str
    #: The oldest glibc or macOS on which it runs.
    oldest: str
    #: The linker: `zig`, or `mingw` from the system's packages.
    linker: str
    #: Platform tags of TensorFlow's wheels.
    tensorflow: tuple[str, ...]

    @property
    def target(self) -> str:
        """cargo's target; cargo-zigbuild accepts a glibc version behind a target for Linux."""
        return f"{self.triple}.{self.oldest}" if "linux" in self.triple else self.triple


#: glibc 2.28 is that of RHEL 8 and Debian 10; TensorFlow's own wheels require 2.17 or 2.27.
SYSTEMS = (
    System(
        "linux-x86_64",
        "x86_64-unknown-linux-gnu",
        "manylinux_2_28_x86_64",
        "2.28",
        "zig",
        ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_27_x86_64"),
    ),
    System(
        "linux-aarch64",
        "aarch64-unknown-linux-gnu",
        "manylinux_2_28_aarch64",
        "2.28",
        "zig",
        ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64"),
    ),
    System("windows-x86_64", "x86_64-pc-windows-gnu", "win_amd64", "", "mingw", ("win_amd64",)),
    System(
        "macos-arm64",
        "aarch64-apple-darwin",
        "macosx_12_0_arm64",
        "12.0",
        "zig",
        ("macosx_12_0_arm64", "macosx_11_0_arm64"),
    ),
)


def by_name(name: str) -> System:
    """The system of this name."""
    return next(system for system in SYSTEMS if system.name == name)


def by_tag(tag: str) -> System | None:
    """The system whose wheel has this platform tag."""
    return next((system for system in SYSTEMS if system.tag == tag), None)
