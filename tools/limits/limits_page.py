"""The tables of docs/LIMITS.md, and the comparison with a stored table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from chips import CHIPS
from rows import MODELS, Limits

#: The markers around the tables in the page.
BEGIN, END = "<!-- limits: begin -->", "<!-- limits: end -->"
#: Rows whose loops are shown with their contents, by a part of their names.
SHOWN = (
    "MatMul float32 4096×4096×4096",
    "MatMul float16 4096×4096×4096",
    "MatMul float32 1024×1024×1024",
    "Conv2D 3×3 64×56×56×64→64 forward",
    "Conv2D 1×1 64×14×14×256→1024 forward",
    "_WgpuFusedAttention",
    "lstm 64 steps, batch 256, width 512",
)
#: How much less a bound may be, and how many more instructions a byte may take, before a loop
#: counts as worse: a compiler orders instructions differently if code around them changes.
LESS, MORE = 0.98, 1.05


def percent(limits: Limits) -> str:
    """A bound, with that of single issue in front, if there is one."""
    shares = [limits.bound] if limits.bound_single is None else [limits.bound_single, limits.bound]
    return " / ".join(f"{100 * share:.0f}" for share in shares if share is not None)


def figure(limits: Limits | None) -> str:
    """What a row of the first table says of a chip."""
    if limits is None:
        return ""
    if limits.problem:
        return "–"
    spills = f", spills {limits.spills}" if limits.spills else ""
    if limits.computes:
        return f"{percent(limits)} %{spills}" if limits.bound is not None else ""
    if limits.issued_per_16_bytes is None:
        return ""
    return f"{limits.issued_per_16_bytes:.0f}{spills}"


def overview(found: list[Limits]) -> list[str]:
    """All rows with all chips: rows limited by arithmetic, then the others."""
    names = [chip for chip in MODELS if any(limits.chip == chip for limits in found)]
    places = {(limits.row, limits.chip): limits for limits in found}
    out = []
    for computes, title in (
        (True, "Largest share of the peak rate, in %"),
        (False, "Instructions for 16 bytes"),
    ):
        rows = dict.fromkeys(limits.row for limits in found if limits.computes == computes)
        out += ["", f"| {title} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        for row in rows:
            figures = (figure(places.get((row, chip))) for chip in names)
            out.append(f"| {row} | {' | '.join(figures)} |")
    return out


def ratio(value: float | None) -> str:
    """Bytes for a multiply-add."""
    return "" if value is None else f"{value:.2f}"


def contents(found: list[Limits]) -> list[str]:
    """The loops of some rows."""
    out = [
        "",
        "| Row | Chip | FMA | Matrices | Other float | Functions | Other | LDS | Memory | Waits "
        "| Barriers | Branches | Issued | Registers | Occupancy | LDS B/FMA | Memory B/FMA | Bound "
        "| By |",
        "|---" * 19 + "|",
    ]
    for name in SHOWN:
        for limits in (limits for limits in found if name in limits.row and limits.counts):
            counts = limits.counts
            lds = f"{counts.get('lds_loads', 0)} + {counts.get('lds_stores', 0)}"
            memory = f"{counts.get('loads', 0)} + {counts.get('stores', 0)}"
            other = counts.get("alu", 0) + counts.get("scalar", 0)
            fma = counts.get("fma", 0) + counts.get("fma16", 0)
            cells = [
                limits.row.partition(": ")[2],
                limits.chip,
                fma,
                counts.get("matrix", 0),
                counts.get("float", 0),
                counts.get("special", 0),
                other,
                lds,
                memory,
                counts.get("waits", 0),
                counts.get("barriers", 0),
                counts.get("branches", 0),
                counts.get("issued", 0),
                limits.registers,
                f"{limits.occupancy} {CHIPS[limits.chip].vendor.unit}",
                ratio(limits.lds_per_fma),
                ratio(limits.memory_per_fma),
                percent(limits),
                limits.bound_by,
            ]
            out.append("| " + " | ".join(map(str, cells)) + " |")
    return out


def tables(found: list[Limits]) -> str:
    """Everything between the markers."""
    mesa = ", ".join(sorted({limits.mesa for limits in found}))
    return "\n".join([f"Mesa {mesa}.", *contents(found), *overview(found)])


def write(page: Path, found: list[Limits]) -> None:
    """Puts the tables between a page's markers."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{tables(found)}\n{END}{after}")


def store(path: Path, found: list[Limits]) -> None:
    """Writes one line of JSON for each row and chip."""
    lines = (json.dumps(limits.json(), ensure_ascii=False) + "\n" for limits in found)
    path.write_text("".join(lines))


def stored(path: Path) -> dict[tuple[str, str], Limits]:
    """What [`store`] wrote, by row and chip."""
    found = [Limits(**json.loads(line)) for line in path.read_text().splitlines()]
    return {(limits.row, limits.chip): limits for limits in found}


def worse(before: Limits, now: Limits) -> str:
    """Why a loop is worse than before; empty if it is not."""
    if now.problem and not before.problem:
        return now.problem
    if now.spills > before.spills:
        return f"spills {now.spills} registers, before {before.spills}"
    if before.bound is not None and (now.bound or 0.0) < before.bound * LESS:
        return f"bound {100 * (now.bound or 0.0):.1f} %, before {100 * before.bound:.1f} %"
    if before.computes or before.issued_per_16_bytes is None:
        return ""
    issued = now.issued_per_16_bytes
    if issued is not None and issued > before.issued_per_16_bytes * MORE:
        return f"{issued:.0f} instructions for 16 bytes, before {before.issued_per_16_bytes:.0f}"
    return ""


def compare(path: Path, found: Iterable[Limits]) -> tuple[list[str], bool]:
    """What got worse since the table was stored, and whether that is a failure: not if another
    version of Mesa compiled it.
    """
    table, out, bad = stored(path), [], False
    for now in found:
        before = table.get((now.row, now.chip))
        if before is None:
            out.append(f"{now.chip}: {now.row}: not in the stored table")
            continue
        if why := worse(before, now):
            same = before.mesa == now.mesa
            bad = bad or same
            note = "" if same else f" (Mesa {now.mesa}, before {before.mesa})"
            out.append(f"{now.chip}: {now.row}: {why}{note}")
    return out, bad
