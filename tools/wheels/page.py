"""The tables of docs/PLATFORMS.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import exports
import lookups
from behaviour import Behaviour, behaviour
from systems import System

#: The markers around the tables in the page.
BEGIN, END = "<!-- platforms: begin -->", "<!-- platforms: end -->"
HEAD = (
    "| TensorFlow | Devices | Variables | Lists | Their other types | `while_loop` | Determinism "
    "| Not exported |\n|---|---|---|---|---|---|---|---|"
)


def fingerprint() -> str:
    """The inputs from this repository that the tables depend on: every name that is looked up, and
    the libraries in which it is looked up.
    """
    core = lookups.core()
    parts = [*sorted(core.required), "", *sorted(core.optional)]
    for file in ("variables", "variants"):
        parts += ["", *sorted(lookups.functions(lookups.read(f"{file}/official.rs")).required)]
    for file in ("variables/cxx.rs", "variants/release.rs", "copy_function.rs", "determinism.rs"):
        found = lookups.symbols(lookups.read(file))
        parts += ["", *sorted(found.common)]
        for series in sorted(found.releases):
            parts += [series, *sorted(found.releases[series])]
    for kind in lookups.CONFIGURATIONS:
        parts += ["", *lookups.modules(kind)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def write(page: Path, cache: Path, systems: Iterable[System]) -> None:
    """Puts the tables between the page's markers."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = "\n\n".join(table(system, cache) for system in systems)
    seen = f"<!-- names looked up: {fingerprint()} -->"
    page.write_text(f"{before}{BEGIN}\n{seen}\n\n{tables}\n\n{END}{after}", encoding="utf-8")


def table(system: System, cache: Path) -> str:
    """The table of a system: the features that each release offers."""
    rows, modules = [], set()
    for package in exports.PACKAGES[system.name]:
        for version in exports.VERSIONS:
            try:
                found = exports.exports(cache, system, package, version)
            except exports.NoWheel:
                rows.append(f"| {package} {version} | no wheel | | | | | | |")
                continue
            seen = behaviour(system, version, found)
            modules.update(seen.modules)
            rows.append(row(f"{package} {version}", seen))
    names = " and ".join(f"`{name}`" for name in sorted(modules))
    return "\n".join([f"### {system.name}", "", f"Found in {names}.", "", HEAD, *rows])


def row(title: str, seen: Behaviour) -> str:
    """A row of a table."""
    lacking = [f"`{name}`" for name in seen.missing]
    lacking += [f"{len(seen.unofficial)} of 5 functions"] if seen.unofficial else []
    lacking += [f"{len(seen.absent)} of the C++ symbols"] if seen.absent else []
    last = ", ".join(lacking)
    if seen.missing or seen.variables == "no device":
        return f"| {title} | none | | | | | | {last} |"
    return (
        f"| {title} | yes | {seen.variables} | {seen.variants} | {'yes' if seen.native else 'CPU'} "
        f"| {'yes' if seen.copies else 'fails'} "
        f"| {'yes' if seen.determinism else 'by variable'} | {last} |"
    )
