"""Tables of the compilers' results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from chips import AMD, CHIPS
from compilers import Result, Variant

HEAD = (
    "| Compiler | Adapter | Variants | Without types | Refused | Spilling | Spilling elsewhere "
    "| Scalars in lanes | Worst occupancy | Seconds | Slowest |"
    "\n|---|---|---|---|---|---|---|---|---|---|---|"
)
#: The target that is no GPU.
DXC = "dxc"
#: The markers around the table in a page.
BEGIN, END = "<!-- drivers: begin -->", "<!-- drivers: end -->"


def is_bad(variant: Variant) -> bool:
    """Whether a variant fails a run: it was refused, or it spills and kernels choose it."""
    return bool(variant.refused) or (variant.spills > 0 and not variant.other)


def unit(target: str) -> str:
    """The unit of occupancy."""
    return CHIPS[target].vendor.unit


def times(count: int) -> str:
    """How often, in words."""
    return "once" if count == 1 else f"{count} times"


def row(result: Result) -> str:
    """A row of the table."""
    if result.problem:
        return f"| {result.target} | {result.problem} | | | | | | | | | |"
    compiled = [v for v in result.variants if not (v.skipped or v.refused)]
    skipped = sum(v.skipped for v in result.variants)
    refused = sum(bool(v.refused) for v in result.variants)
    own = [v for v in compiled if not v.other]
    spilling = sum(v.spills > 0 for v in own)
    elsewhere = sum(v.spills > 0 for v in compiled) - spilling
    known = Counter(v.occupancy for v in own if v.occupancy is not None)
    worst = f"{min(known)} {unit(result.target)}, {times(known[min(known)])}" if known else ""
    chip = CHIPS.get(result.target)
    scalars = f"{sum(v.scalars > 0 for v in own)}" if chip and chip.vendor is AMD else ""
    figures = f"{spilling} | {elsewhere}" if chip else " | "
    slowest = max(compiled, key=lambda v: v.seconds, default=None)
    slow = f"{slowest.seconds:.1f} s, {slowest.family}" if slowest else ""
    seconds = sum(v.seconds for v in compiled)
    return (
        f"| {result.target} | {result.adapter} | {len(result.variants)} | {skipped} | {refused} "
        f"| {figures} | {scalars} | {worst} | {seconds:.0f} | {slow} |"
    )


def details(result: Result) -> list[str]:
    """The variants that were refused or spill, and the occupancy of each family."""
    out = []
    for v in result.variants:
        if v.refused:
            out.append(f"{result.target}: refused: {v.family}: {v.label}: {v.refused}")
        elif v.spills:
            where = ", elsewhere" if v.other else ""
            out.append(f"{result.target}: {v.spills} spills{where}: {v.family}: {v.label}")
        elif v.scalars and not v.other:
            out.append(f"{result.target}: {v.scalars} scalars: {v.family}: {v.label}")
    families: dict[str, Counter[int]] = {}
    for v in result.variants:
        if v.occupancy is not None and not v.other:
            families.setdefault(v.family, Counter())[v.occupancy] += 1
    for family, counts in families.items():
        text = ", ".join(f"{n} of {value}" for value, n in sorted(counts.items()))
        out.append(f"{result.target}: {unit(result.target)}: {family}: {text}")
    return out


def write(page: Path, results: list[Result]) -> None:
    """Puts rows between a page's markers. Rows of other targets stay."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = {line.split("|")[1].strip(): line for line in table.splitlines() if line}
    rows |= {result.target: row(result) for result in results}
    order = [target for target in (*CHIPS, DXC) if target in rows]
    lines = "\n".join([HEAD, *(rows[target] for target in order)])
    page.write_text(f"{before}{BEGIN}\n{lines}\n{END}{after}")
