"""check WHEEL...: checks each wheel against its platform tag.

A wheel's name says on which systems its library loads. So the library must be for that system and
processor, require no newer C library or macOS, need no library that the system lacks, and export
the functions that TensorFlow looks for.
"""

from __future__ import annotations

import re
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

import lief

sys.path.insert(0, str(Path(__file__).parent))
import audit
import dxcompiler
import elf
import macho
import pe
from entries import ENTRIES, FOLDER
from systems import System, by_tag

# If lief cannot read a part of a library, the checks report that part as missing.
lief.logging.disable()
#: A check's facts for people, and the problems.
Checked = tuple[list[str], list[str]]


class Report(NamedTuple):
    """The findings about a wheel."""

    facts: list[str]
    problems: list[str]


def check(wheel: Path, audited: bool = False) -> Report:
    """Checks a wheel; if asked for, auditwheel does so as well."""
    facts, problems = [f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB"], []
    name = re.fullmatch(r"tensorflow_wgpu-[^-]+-(py3-none-(\w+))\.whl", wheel.name)
    system = by_tag(name[2]) if name else None
    if name is None or system is None:
        return Report(facts, [f"{wheel.name} is not the name of a wheel for a known system"])
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        problems += metadata_problems(archive, name[1])
        members = [n for n in archive.namelist() if n.endswith((".so", ".dylib", ".dll", ".pyd"))]
        expected = [f"{FOLDER}/{library_name(system)}"]
        if "windows" in system.triple:
            expected.append(dxcompiler.IN_WHEEL)
            problems += dxc_problems(archive)
        if sorted(members) != sorted(expected):
            problems.append(f"the libraries are {members} and not {expected}")
        for member in sorted({*members} - {dxcompiler.IN_WHEEL}):
            found, wrong = library(Path(archive.extract(member, folder)), system)
            facts += found
            problems += wrong
    if audited and "linux" in system.triple:
        found, wrong = audit.audit(wheel, system)
        facts += found
        problems += wrong
    return Report(facts, problems)


def dxc_problems(archive: zipfile.ZipFile) -> list[str]:
    """The problems of the shader compiler in a wheel for Windows."""
    names = archive.namelist()
    if dxcompiler.IN_WHEEL not in names:
        return [f"there is no {dxcompiler.IN_WHEEL}"]
    problems = []
    if dxcompiler.digest(archive.read(dxcompiler.IN_WHEEL)) != dxcompiler.SHA256:
        problems.append(f"{dxcompiler.IN_WHEEL} is another file than the pinned one")
    if f"{dxcompiler.IN_WHEEL}.LICENSE.txt" not in names:
        problems.append(f"{dxcompiler.IN_WHEEL} lacks its licence")
    return problems


def library_name(system: System) -> str:
    """The library's file name on a system: TensorFlow looks at the suffix."""
    if "windows" in system.triple:
        return "tensorflow_wgpu.dll"
    return f"libtensorflow_wgpu.{'dylib' if 'apple' in system.triple else 'so'}"


def library(path: Path, system: System) -> Checked:
    """The checks of the library's own format."""
    if "linux" in system.triple:
        return elf.check(path, system, ENTRIES)
    if "windows" in system.triple:
        return pe.check(path, system, ENTRIES)
    return macho.check(path, system, ENTRIES)


def metadata_problems(archive: zipfile.ZipFile, tag: str) -> list[str]:
    """The problems of the file WHEEL, which installers read besides the name."""
    names = [n for n in archive.namelist() if n.endswith(".dist-info/WHEEL")]
    if len(names) != 1:
        return [f"there are {len(names)} files WHEEL"]
    fields = Parser().parsestr(archive.read(names[0]).decode())
    problems = []
    if fields.get_all("Tag") != [tag]:
        problems.append(f"WHEEL says {fields.get_all('Tag')} where the name says {tag}")
    if fields.get("Root-Is-Purelib") != "false":
        problems.append("WHEEL takes it for a wheel without a library")
    return problems


def main() -> int:
    """Checks the wheels that the command line names."""
    bad = False
    for path in map(Path, sys.argv[1:]):
        report = check(path, audited=True)
        print("\n".join(["", *report.facts, *(f"WRONG: {p}" for p in report.problems)]))
        bad |= bool(report.problems)
    return int(bad or len(sys.argv) < 2)


if __name__ == "__main__":
    sys.exit(main())
