"""Libraries for Windows."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import lief
from systems import System

#: Libraries that Windows 10 itself has, without their suffixes. A library of the compiler
#: (libgcc_s_seh-1, libwinpthread-1, vcruntime140) is not part of Windows.
SYSTEM = (
    "advapi32 bcrypt bcryptprimitives combase crypt32 d3d12 d3dcompiler_47 dbghelp dcomp dxgi"
    " gdi32 kernel32 msvcrt ntdll ole32 oleaut32 opengl32 propsys rpcrt4 setupapi shell32"
    " shlwapi ucrtbase user32 userenv ws2_32"
)
#: API sets, which Windows maps to its libraries.
API_SET = re.compile(r"(api|ext)-ms-win-[\w-]+\.dll")


def check(path: Path, system: System, entries: Collection[str]) -> tuple[list[str], list[str]]:
    """The libraries that the library imports, and the problems with them."""
    pe = lief.PE.parse(str(path)) if lief.is_pe(str(path)) else None
    if pe is None:
        return [], [f"{path.name} is no PE file"]
    imported = sorted({str(library.name).lower() for library in pe.imports})
    delayed = sorted({str(library.name).lower() for library in pe.delay_imports})
    facts = [
        f"PE for {pe.header.machine.name}, {path.stat().st_size / 2**20:.1f} MiB",
        f"imports {', '.join(imported)}"
        + (f"; when they are called {', '.join(delayed)}" if delayed else ""),
    ]
    problems = []
    if pe.header.machine != lief.PE.Header.MACHINE_TYPES.AMD64:
        problems.append(f"it is for {pe.header.machine.name}, not for {system.name}")
    if not pe.header.has_characteristic(lief.PE.Header.CHARACTERISTICS.DLL):
        problems.append("it is no DLL")
    problems += [
        f"it imports {name}, which Windows does not have by itself"
        for name in [*imported, *delayed]
        if name.removesuffix(".dll") not in SYSTEM.split() and not API_SET.fullmatch(name)
    ]
    table = pe.get_export()
    exported = {str(entry.name) for entry in table.entries} if table else set()
    problems += [f"it does not export {entry}" for entry in entries if entry not in exported]
    for flag in ("DYNAMIC_BASE", "NX_COMPAT", "HIGH_ENTROPY_VA"):
        if not pe.optional_header.has(lief.PE.OptionalHeader.DLL_CHARACTERISTICS[flag]):
            problems.append(f"it is linked without {flag}")
    return facts, problems
