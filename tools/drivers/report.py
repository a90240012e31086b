"""Tables of what compilers said."""

from __future__ import annotations

from collections import Counter

from compilers import AMD, Result

HEAD = (
    "| Compiler | Adapter | Variants | Without types | Refused | Spilling | Worst occupancy "
    "| Seconds | Slowest |\n|---|---|---|---|---|---|---|---|---|"
)


def row(result: Result) -> str:
    """A row of the table."""
    if result.problem:
        return f"| {result.target} | {result.problem} | | | | | | | |"
    compiled = [v for v in result.variants if not (v.skipped or v.refused)]
    skipped = sum(v.skipped for v in result.variants)
    refused = sum(bool(v.refused) for v in result.variants)
    spilling = sum(v.spills > 0 for v in compiled)
    known = [v.occupancy for v in compiled if v.occupancy is not None]
    unit = "waves" if result.target in AMD else "lanes"
    worst = f"{min(known)} {unit}" if known else ""
    slowest = max(compiled, key=lambda v: v.seconds, default=None)
    slow = f"{slowest.seconds:.1f} s, {slowest.label[:60]}" if slowest else ""
    seconds = sum(v.seconds for v in compiled)
    return (
        f"| {result.target} | {result.adapter} | {len(result.variants)} | {skipped} | {refused} "
        f"| {spilling} | {worst} | {seconds:.0f} | {slow} |"
    )


def details(result: Result) -> list[str]:
    """The variants that were refused or spill, and how many of each family have few waves."""
    out = []
    for v in result.variants:
        if v.refused:
            out.append(f"{result.target}: refused: {v.family}: {v.label}: {v.refused}")
        elif v.spills:
            out.append(
                f"{result.target}: {v.spills} spills, {v.registers} registers: {v.family}: "
                f"{v.label}"
            )
    few = Counter(v.family for v in result.variants if v.occupancy is not None and v.occupancy <= 6)
    if result.target in AMD and few:
        named = ", ".join(f"{family} {count}" for family, count in few.most_common())
        out.append(f"{result.target}: at most 6 waves: {named}")
    return out
