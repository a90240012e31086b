"""The functions that the plug-in finds in one of TensorFlow's wheels, and its behaviour there.

The rules are those of src/ffi: `variables/mod.rs`, `variants/mod.rs` and `copy_function.rs` choose
between the ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import lookups
from systems import System

#: Symbols of the C++ runtime, which TensorFlow's libraries need not export.
RUNTIME = frozenset({"_Znwm", "_ZdlPv"})
#: The function that tells whether a variable may be updated in place.
UNIQUE = "RefCountIsOne"
#: The function that makes TensorFlow's own kernels for types that TensorFlow does not register.
CREATE_KERNEL = "CreateOpKernel"


class Behaviour(NamedTuple):
    """The behaviour with one wheel."""

    #: The libraries that export the names that are looked up.
    modules: tuple[str, ...]
    #: Missing functions without which there is no device.
    missing: tuple[str, ...]
    #: Functions for variables and variants that are not exported; C++ symbols may replace them.
    unofficial: tuple[str, ...]
    #: `official`, `C++`, `C++, never in place`, or `no device`.
    variables: str
    #: `official`, `C++`, or `CPU`.
    variants: str
    #: Whether TensorFlow's own kernels of lists serve types that it does not register.
    native: bool
    #: Whether `enable_op_determinism` is seen; otherwise only the environment variable is.
    determinism: bool
    #: Whether loops may copy within a device; TensorFlow 2.17 cannot.
    copies: bool
    #: C++ symbols that a release's table names and the wheel does not export.
    absent: tuple[str, ...]


def configuration(system: System) -> str:
    """The name of a system in `lookups`."""
    return next(name for name in ("linux", "apple", "windows") if name in system.triple)


def behaviour(system: System, version: str, exports: Mapping[str, frozenset[str]]) -> Behaviour:
    """The behaviour of the plug-in, given the exports of the libraries that it looks into."""
    kind = configuration(system)
    asked = lookups.modules(kind)
    serving = {
        path.rpartition("/")[2]: names
        for path, names in exports.items()
        if path.rpartition("/")[2] in asked
    }
    there = frozenset().union(*serving.values()) | RUNTIME
    series = ".".join(version.split(".")[:2])
    core = lookups.core()
    looked_up = core.required | core.optional
    variables = lookups.functions(lookups.read("variables/official.rs")).required
    variants = lookups.functions(lookups.read("variants/official.rs")).required
    absent: set[str] = set()

    def complete(file: str, but: str | None = None) -> bool:
        """Whether all C++ symbols of a file are there, except those that contain the word `but`."""
        wanted = lookups.symbols(lookups.read(file)).of(series)
        if wanted is None:
            return False
        absent.update(wanted - there)
        return {name for name in wanted if not but or but not in name} <= there

    if variables <= there:
        way = "official"
    elif kind != "windows" and complete("variables/cxx.rs", UNIQUE):
        way = "C++, never in place" if any(UNIQUE in name for name in absent) else "C++"
    else:
        way = "no device"
    linux = kind == "linux"
    # 2.22's TF_ZerosLikeVariant ends the process.
    if variants <= there and series != "2.22":
        lists = "official"
    elif linux and complete("variants/release.rs", CREATE_KERNEL):
        lists = "C++"
    else:
        lists = "CPU"
    known = linux and lookups.symbols(lookups.read("variants/release.rs")).of(series)
    native = bool(known) and all(name in there for name in known if CREATE_KERNEL in name)
    determinism = lookups.symbols(lookups.read("determinism.rs")).common
    return Behaviour(
        tuple(name for name, names in serving.items() if names & looked_up),
        tuple(sorted(core.required - there)),
        tuple(sorted((variables | variants) - there)),
        way,
        lists,
        native,
        bool(determinism & there),
        series != "2.17" or (linux and complete("copy_function.rs")),
        tuple(sorted(absent)),
    )
