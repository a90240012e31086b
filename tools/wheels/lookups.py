"""The names that the plug-in looks up in the running TensorFlow, read from src/ffi.

Functions of the C API are in tables (`symbol_table!`), C++ symbols are C strings with mangled
names. If a table holds names by release, its entries start with `version: "2.21."`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FFI = ROOT / "src/ffi"
#: The conditions with which the `cfg` of src/ffi/symbols.rs names a system.
CONFIGURATIONS = {
    "linux": 'target_os = "linux"',
    "apple": 'target_vendor = "apple"',
    "windows": "windows",
}
TABLE = re.compile(r"^symbol_table! \{\n(.*?)^\}", re.M | re.S)
FIELD = re.compile(r"^\s*(?:#\[.*\]\s*)?(\w+):(?!:)", re.M)
MANGLED = re.compile(r'c"(_Z\w+|\?[^"]+)"')
RELEASE = re.compile(r'\bversion: "(\d+\.\d+)\."')
SERIES = re.compile(r'const SERIES: &str = "(\d+\.\d+)\.";')


class Functions(NamedTuple):
    """The functions of the C API that one file needs."""

    required: frozenset[str]
    optional: frozenset[str]


class Symbols(NamedTuple):
    """The C++ symbols of one file: those for every release, and those for one."""

    common: frozenset[str]
    releases: dict[str, frozenset[str]]

    def of(self, series: str) -> frozenset[str] | None:
        """The symbols that a release needs; None if the file does not know the release."""
        if series not in self.releases:
            return None
        return self.common | self.releases[series]


def functions(text: str) -> Functions:
    """The tables of a file."""
    required, optional = set(), set()
    for table in TABLE.findall(text):
        first, found, second = table.partition("optional {")
        if not found or "required {" not in first:
            raise ValueError("a symbol_table! without `required` and `optional`")
        required.update(names(first.partition("required {")[2]))
        optional.update(names(second))
    return Functions(frozenset(required), frozenset(optional))


def names(fields: str) -> set[str]:
    """The names of a table's fields, whose types may span several lines."""
    return set(FIELD.findall(re.sub(r"//.*", "", fields)))


def symbols(text: str) -> Symbols:
    """The mangled names of a file, outside its tests."""
    text = text.partition("#[cfg(test)]")[0]
    if series := SERIES.search(text):
        return Symbols(frozenset(), {series[1]: frozenset(MANGLED.findall(text))})
    releases: dict[str, frozenset[str]] = {}
    places = [*RELEASE.finditer(text)]
    end = text.find("];", places[-1].end()) if places else 0
    bounds = [p.start() for p in places] + [end]
    for place, begin, stop in zip(places, bounds, bounds[1:]):
        releases[place[1]] = frozenset(MANGLED.findall(text[begin:stop]))
    outside = text[: bounds[0]] + text[end:]
    return Symbols(frozenset(MANGLED.findall(outside)), releases)


def read(path: str) -> str:
    """A file of src/ffi."""
    return (FFI / path).read_text(encoding="utf-8")


def core() -> Functions:
    """The functions without which nothing works, and those that may be missing. They come from all
    tables except Python's, and those of variables and variants, which have C++ symbols as a
    replacement.
    """
    apart = {"python.rs", "symbols.rs", "variables/official.rs", "variants/official.rs"}
    required, optional = {"TF_Version"}, set()
    for file in sorted(FFI.rglob("*.rs")):
        if str(file.relative_to(FFI)) not in apart:
            found = functions(file.read_text(encoding="utf-8"))
            required |= found.required
            optional |= found.optional
    return Functions(frozenset(required), frozenset(optional))


def modules(configuration: str) -> tuple[str, ...]:
    """The file names of the libraries in which the plug-in looks on a system."""
    found = re.search(
        rf"^#\[cfg\({re.escape(CONFIGURATIONS[configuration])}\)\]\n"
        r"const LIBRARIES: &\[&str\] =\s*&\[(.*?)\];",
        read("symbols.rs"),
        re.M | re.S,
    )
    if found is None:
        raise ValueError(f"src/ffi/symbols.rs names no libraries for {configuration}")
    quoted = re.findall(r'"([^"]+)"', found[1])
    return tuple(dict.fromkeys(name.rpartition("/")[2] for name in quoted))
