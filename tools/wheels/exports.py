"""The exports of TensorFlow's own wheels, for each system.

Downloads a wheel with pip, reads the export tables of its libraries and deletes the wheel. Only a
compressed list of names for each wheel is kept, in `exports/`.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import lief
from systems import System

#: The supported releases, and the Python whose wheels are read.
VERSIONS = ("2.16.2", "2.17.1", "2.18.1", "2.19.1", "2.20.0", "2.21.0", "2.22.0rc0")
PYTHON = "3.11"
#: TensorFlow's packages for each kind of system, all of which hold the module `tensorflow`.
PACKAGES = {
    "linux-x86_64": ("tensorflow", "tensorflow-cpu"),
    "linux-aarch64": ("tensorflow",),
    "windows-x86_64": ("tensorflow",),
    "macos-arm64": ("tensorflow",),
}
#: Packages that are required in place of one that holds nothing itself.
BEHIND = {"tensorflow": ("tensorflow-intel", "tensorflow-cpu-aws", "tensorflow-macos")}
#: The libraries of a wheel that may hold the C API.
LIBRARY = re.compile(
    r"(^|/)(lib|_pywrap_)?tensorflow(_framework|_cc|_common|_internal)?[.\d]*"
    r"\.(so|dylib|dll|pyd)[.\d]*$"
)

Exports = dict[str, frozenset[str]]


class NoWheel(Exception):
    """PyPI has no wheel of this release for this system."""


def exports(cache: Path, system: System, package: str, version: str) -> Exports:
    """The names that each library of a wheel exports, from the cache or from PyPI."""
    stored = cache / "exports" / f"{system.name}-{package}-{version}.json.gz"
    if not stored.exists():
        stored.parent.mkdir(parents=True, exist_ok=True)
        print(f"wheels: reading {package} {version} for {system.name}", flush=True)
        try:
            found = download(cache, system, package, version)
        except NoWheel:
            found = {}
        packed = gzip.compress(json.dumps({k: sorted(v) for k, v in found.items()}).encode())
        partial = stored.with_suffix(".partial")
        partial.write_bytes(packed)
        partial.rename(stored)
    names = json.loads(gzip.decompress(stored.read_bytes()))
    if not names:
        raise NoWheel(f"{package} {version} has no wheel for {system.name}")
    return {library: frozenset(exported) for library, exported in names.items()}


def download(cache: Path, system: System, package: str, version: str) -> Exports:
    """Downloads a wheel, or the package that it requires in its place, and reads it."""
    for name in (package, *BEHIND.get(package, ())):
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--no-cache-dir", "--only-binary=:all:", "--python-version", PYTHON]
            command += [f"--platform={tag}" for tag in system.tensorflow]
            command += ["--dest", folder, f"{name}=={version}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                if "No matching distribution" in done.stderr:
                    continue
                raise SystemExit(f"wheels: {' '.join(command)} failed:\n{done.stderr}")
            (wheel,) = Path(folder).glob("*.whl")
            if found := read(wheel):
                return found
    raise NoWheel(f"{package} {version} has no wheel for {system.name}")


def read(wheel: Path) -> Exports:
    """The names that the libraries of a wheel export."""
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if LIBRARY.search(member):
                library = wheel.with_name(Path(member).name)
                with archive.open(member) as source, library.open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                found[member] = exported(library)
                library.unlink()
    return found


def exported(library: Path) -> frozenset[str]:
    """The names that a library exports, as dlsym and GetProcAddress take them."""
    if lief.is_elf(str(library)):
        config = lief.ELF.ParserConfig()
        config.parse_symtab_symbols = config.parse_relocations = config.parse_notes = False
        config.parse_symbol_versions = config.parse_overlay = False
        elf = lief.ELF.parse(str(library), config)
        return frozenset(str(s.name) for s in elf.dynamic_symbols if s.exported)
    if lief.is_pe(str(library)):
        config = lief.PE.ParserConfig()
        config.parse_signature = config.parse_imports = config.parse_rsrc = False
        config.parse_reloc = False
        table = lief.PE.parse(str(library), config).get_export()
        return frozenset(e.name for e in table.entries) if table else frozenset()
    config = lief.MachO.ParserConfig()
    config.parse_dyld_bindings = config.parse_dyld_rebases = False
    binary = lief.MachO.parse(str(library), config).at(0)
    # dlsym adds the leading underscore itself.
    return frozenset(str(s.name)[1:] for s in binary.exported_symbols)
