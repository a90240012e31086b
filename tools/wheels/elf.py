"""Libraries for Linux."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import lief
from systems import System

#: Libraries that every distribution with glibc has: a part of those that PEP 600 allows.
NEEDED = re.compile(r"lib(c|m|dl|pthread|rt|gcc_s)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+")
#: Versions of symbols: glibc's, of which a system must have the newest one, and libgcc's.
GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")
#: The unwinder's functions, which are older than glibc 2.17.
GCC = ("GCC_3.0", "GCC_3.3", "GCC_4.2.0")
MACHINES = {"x86_64": lief.ELF.ARCH.X86_64, "aarch64": lief.ELF.ARCH.AARCH64}


def check(path: Path, system: System, entries: Collection[str]) -> tuple[list[str], list[str]]:
    """The libraries that the library needs, and the problems with them."""
    elf = lief.ELF.parse(str(path)) if lief.is_elf(str(path)) else None
    if elf is None:
        return [], [f"{path.name} is no ELF file"]
    needed = sorted(str(entry.name) for entry in elf.dynamic_entries if is_needed(entry))
    versions = sorted(
        {str(v.name) for r in elf.symbols_version_requirement for v in r.get_auxiliary_symbols()}
    )
    glibc = [found[1] for v in versions if (found := GLIBC.fullmatch(v))]
    newest = max(glibc, key=number, default="none")
    facts = [
        f"ELF for {elf.header.machine_type.name}, {path.stat().st_size / 2**20:.1f} MiB",
        f"needs {', '.join(needed)}; newest symbol of glibc {newest}, promised {system.oldest}",
    ]
    problems = []
    if elf.header.machine_type != MACHINES[system.triple.partition("-")[0]]:
        problems.append(f"it is for {elf.header.machine_type.name}, not for {system.name}")
    if elf.header.file_type != lief.ELF.Header.FILE_TYPE.DYN:
        problems.append("it is no shared library")
    if not glibc or number(newest) > number(system.oldest):
        problems.append(f"glibc {system.oldest} is promised, {newest} is asked for")
    strangers = [v for v in versions if not GLIBC.fullmatch(v) and v not in GCC]
    if strangers:
        problems.append(f"it asks for {', '.join(strangers)}")
    problems += [f"it needs {name}" for name in needed if not NEEDED.fullmatch(name)]
    for tag in (lief.ELF.DynamicEntry.TAG.RPATH, lief.ELF.DynamicEntry.TAG.RUNPATH):
        if elf.has(tag):
            problems.append(f"it has a {tag.name}")
    exported = {str(symbol.name) for symbol in elf.exported_symbols}
    problems += [f"it does not export {entry}" for entry in entries if entry not in exported]
    return facts, problems


def is_needed(entry: lief.ELF.DynamicEntry) -> bool:
    """Whether it names a library that is loaded with this one."""
    return entry.tag == lief.ELF.DynamicEntry.TAG.NEEDED


def number(version: str) -> list[int]:
    """A version as a key for comparisons."""
    return [int(part) for part in version.split(".")] if version[0].isdigit() else []
