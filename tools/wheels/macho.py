"""Libraries for macOS."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import lief
import signature
from systems import System

#: Libraries that macOS itself has: the frameworks, and those that Rust's standard library needs.
SYSTEM = re.compile(
    r"/System/Library/Frameworks/(\w+)\.framework/(?:Versions/[A-C]/)?\1"
    r"|/usr/lib/(libSystem\.B|libobjc\.A|libiconv\.2|libcharset\.1)\.dylib"
)
#: Library ordinals that stand for no library: the name is searched for in all of them.
ANY_LIBRARY = (-2, 0xFE)
#: The load commands that name needed libraries.
LOADS = {
    lief.MachO.LoadCommand.TYPE.LOAD_DYLIB,
    lief.MachO.LoadCommand.TYPE.LOAD_WEAK_DYLIB,
    lief.MachO.LoadCommand.TYPE.REEXPORT_DYLIB,
    lief.MachO.LoadCommand.TYPE.LAZY_LOAD_DYLIB,
}
#: The size of a page on Apple's processors.
PAGE = 1 << 14
OWN_NAME = lief.MachO.LoadCommand.TYPE.ID_DYLIB


def check(path: Path, system: System, entries: Collection[str]) -> tuple[list[str], list[str]]:
    """The libraries that the library needs, and the problems with them."""
    fat = lief.MachO.parse(str(path)) if lief.is_macho(str(path)) else None
    if fat is None:
        return [], [f"{path.name} is no Mach-O file"]
    macho = fat.at(0)
    problems = ["it holds several processors' code"] if len(fat) != 1 else []
    libraries = [str(library.name) for library in macho.libraries if library.command in LOADS]
    version = macho.build_version
    oldest = ".".join(map(str, version.minos[:2])) if version else "none"
    facts = [
        f"Mach-O for {macho.header.cpu_type.name}, {path.stat().st_size / 2**20:.1f} MiB, "
        f"macOS {oldest}",
        f"needs {', '.join(libraries)}",
    ]
    if macho.header.cpu_type != lief.MachO.Header.CPU_TYPE.ARM64:
        problems.append(f"it is for {macho.header.cpu_type.name}, not for {system.name}")
    if macho.header.file_type != lief.MachO.Header.FILE_TYPE.DYLIB:
        problems.append("it is no dylib")
    if version is None or version.platform != lief.MachO.BuildVersion.PLATFORMS.MACOS:
        problems.append("it does not say that it is for macOS")
    if oldest != system.oldest:
        problems.append(f"macOS {system.oldest} is promised, {oldest} is asked for")
    problems += [f"it needs {name}" for name in libraries if not SYSTEM.fullmatch(name)]
    own = [str(library.name) for library in macho.libraries if library.command == OWN_NAME]
    if any(name.startswith("/") for name in own):
        problems.append(f"it calls itself {own[0]}, which is where it was built")
    problems += namespace_problems(macho)
    problems += [
        f"its segment {segment.name} does not begin at a page"
        for segment in macho.segments
        if segment.virtual_address % PAGE or segment.file_offset % PAGE
    ]
    problems += signature_problems(macho, path.read_bytes())
    if macho.rpaths:
        problems.append(f"it looks for libraries in {[str(r.path) for r in macho.rpaths]}")
    exported = {str(symbol.name) for symbol in macho.exported_symbols}
    problems += [f"it does not export _{e}" for e in entries if f"_{e}" not in exported]
    return facts, problems


def namespace_problems(macho: lief.MachO.Binary) -> list[str]:
    """The problem of names that are not bound to the library that has them: if the linker did not
    know the library, they are searched for when the library is loaded.
    """
    if not macho.header.has(lief.MachO.Header.FLAGS.TWOLEVEL):
        return ["its names are bound to no libraries"]
    loose = {str(s.name) for s in macho.imported_symbols if s.library_ordinal in ANY_LIBRARY}
    loose |= {
        str(b.symbol.name)
        for b in macho.bindings
        if b.has_symbol and b.library_ordinal in ANY_LIBRARY
    }
    return [f"no library is named that has {', '.join(sorted(loose))}"] if loose else []


def signature_problems(macho: lief.MachO.Binary, content: bytes) -> list[str]:
    """The problems of the signature."""
    if not macho.has_code_signature:
        return ["it is not signed: Apple's processors run signed code alone"]
    command = macho.code_signature
    begin, end = command.data_offset, command.data_offset + command.data_size
    if end != len(content):
        return ["its signature is not the end of the file"]
    return signature.problems(content[:begin], content[begin:end])
