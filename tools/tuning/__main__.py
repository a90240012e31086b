"""tuning bounds [CHIP ...] | merge [REPORT ...]: fills the shipped table of tuned choices.

`bounds` compiles candidates for GPUs that are not there, and stores what their compilers make of
them. `merge` writes the table: from what is stored, from the table's measured rows, and from
reports of users' GPUs. docs/TUNING.md tells the rest.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "drivers"))
sys.path.insert(0, str(Path(__file__).parents[1] / "limits"))
sys.path.insert(0, str(Path(__file__).parent))
import bounds_rows
import measured_rows
from shipped_table import ROOT, TABLE, Class, Measured, Row, Table

STORED = ROOT / "tools/tuning/bounds.jsonl"
#: One chip of each family for which `bounds` compiles without a shim that must be built.
USUAL = ("ada", "navi31", "gfx1201", "m1", "adreno740")


def arguments(given: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tuning", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    bounds = commands.add_parser("bounds", help="compile candidates, and store their bounds")
    bounds.add_argument("chips", nargs="*", metavar="CHIP", help=f"as of tools/limits; {USUAL}")
    bounds.add_argument("--rows", nargs="+", default=[], help="only rows with one of these texts")
    bounds.add_argument("--fresh", action="store_true", help="compile what is stored, too")
    bounds.add_argument("--folder", type=Path, default=ROOT / "target/drivers")
    bounds.add_argument("--program", type=Path, default=ROOT / "target/debug/examples/kernels")
    merge = commands.add_parser("merge", help="write the table")
    merge.add_argument("reports", nargs="*", type=Path, metavar="REPORT")
    merge.add_argument("--table", type=Path, default=TABLE, help="the table to begin with")
    merge.add_argument("--output", type=Path, help="the file to write, else the table")
    merge.add_argument("--check", action="store_true", help="write nothing; 1 if it would change")
    for command in (bounds, merge):
        command.add_argument("--stored", type=Path, default=STORED, help="file of bounds")
    return parser.parse_args(given)


def bounds(options: argparse.Namespace) -> int:
    """Compiles candidates that are not stored yet, chip by chip; each row is stored at once."""
    import compiled

    folder = options.folder.resolve()
    version = compiled.mesa(folder)
    names = compiled.wanted(options.program, options.rows)
    for chip in options.chips or USUAL:
        known = bounds_rows.stored(options.stored)
        done = {one.row for one in known if (one.chip, one.mesa) == (chip, version)}
        missing = [name for name in names if options.fresh or name not in done]
        found: list[bounds_rows.Candidate] = []
        for one in compiled.candidates(folder, options.program, chip, version, missing):
            found.append(one)
            again = {(each.chip, each.row) for each in found}
            kept = [each for each in known if (each.chip, each.row) not in again]
            bounds_rows.store(options.stored, [*kept, *found])
        print(f"{chip}: {len({one.row for one in found})} rows, {len(found)} candidates")
    return 0


def merged(table: Table, bound: Iterable[Row], measured: Iterable[Row]) -> Table:
    """The table with bounds and reports. Measured rows of the table count as reports, and its bound
    rows are made anew. What was measured comes before any bound.
    """
    by_class: dict[Class, list[Row]] = defaultdict(list)
    kept = (row for row in table.rows.values() if isinstance(row.source, Measured))
    for row in [*kept, *measured]:
        by_class[row.of].append(row)
    chosen = {of: measured_rows.best(rows) for of, rows in by_class.items()}
    return Table(table.comments, {**{row.of: row for row in bound}, **chosen})


def merge(options: argparse.Namespace) -> int:
    """Writes the table, unless a report is refused."""
    measured, refused = [], []
    for path in options.reports:
        try:
            measured += measured_rows.read(path)
        except (OSError, measured_rows.Refused) as error:
            refused.append(str(error))
    if refused:
        print("\n".join(f"refused: {line}" for line in refused), file=sys.stderr)
        return 1
    found = bounds_rows.rows(bounds_rows.stored(options.stored))
    text = str(merged(Table.read(options.table), found, measured))
    output = options.output or options.table
    if options.check:
        same = output.exists() and output.read_text(encoding="utf-8") == text
        print("the table is what the bounds say" if same else f"{output} is out of date")
        return int(not same)
    output.write_text(text, encoding="utf-8")
    return 0


def main(given: list[str] | None = None) -> int:
    """Runs it."""
    options = arguments(given)
    return bounds(options) if options.command == "bounds" else merge(options)


if __name__ == "__main__":
    sys.exit(main())
