"""limits [CHIP ...]: what compilers of real GPUs make of each row of `benches/kernels`.

No GPU is needed. The plans choose kernels as on the chip. The hot loops are counted, and compared
with what the chip can issue and move. docs/LIMITS.md tells the rest.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "drivers"))
import chips
import fetch
import limits_page
import rows

ROOT = Path(__file__).parents[2]
#: The chips of the table: one for each compiler, and the generations that issue differently.
USUAL = ("navi31", "gfx1201", "ada", "dg2", "bmg", "m1", "adreno740")
#: The chips and rows of continuous integration. Intel's GPUs are left out, because their shim is
#: built from source.
SAMPLE = ("navi31", "ada", "m1", "adreno740")
SAMPLE_ROWS = (
    "MatMul float32 1024×1024×1024",
    "MatMul float16 1024×1024×1024",
    "Conv2D 3×3 64×56×56×64→64 forward",
    "_WgpuFusedAttention float32 32×128",
    "lstm 64 steps, batch 4, width 128",
    "Transpose float32 4096×4096",
    "_WgpuFusedRowwise softmax",
    "AddV2 float32 16 M",
)
TABLE = ROOT / "tools/limits/table.jsonl"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="limits", description=__doc__.split("\n\n")[0])
    parser.add_argument("chips", nargs="*", metavar="CHIP", help=", ".join(rows.MODELS))
    parser.add_argument("--rows", nargs="+", default=[], help="only rows with one of these texts")
    parser.add_argument("--sample", action="store_true", help="the fixed sample of CI")
    parser.add_argument("--compare", action="store_true", help="with the stored table")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/drivers")
    parser.add_argument("--jobs", type=int, default=2, help="chips at a time")
    parser.add_argument(
        "--program", type=Path, default=ROOT / "target/debug/examples/kernels", help="kernels"
    )
    parser.add_argument("--json", type=Path, help="file for a line of each row and chip")
    parser.add_argument(
        "--merge", action="store_true", help="keep the other lines of that file, and of the page"
    )
    parser.add_argument("--write", type=Path, help="page that gets the tables")
    parser.add_argument("--listings", type=Path, help="folder for a file of each row and chip")
    options = parser.parse_args()
    options.chips = options.chips or list(SAMPLE if options.sample else USUAL)
    options.rows = options.rows or list(SAMPLE_ROWS if options.sample else ())
    if options.merge and not options.json:
        parser.error("--merge needs --json")
    if unknown := set(options.chips) - set(rows.MODELS):
        parser.error(f"no chip {', '.join(sorted(unknown))}; there are {', '.join(rows.MODELS)}")
    return options


def main() -> int:
    """Runs it."""
    options = arguments()
    if not fetch.is_supported():
        print("limits: left out: the packages are those of Debian 12 on x86-64")
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    fetch.fetch_newest(folder)
    mesa = fetch.newest_version(folder)
    wanted = rows.names(options.program, options.rows)
    started = [
        (
            [*chips.starter(folder, chips.CHIPS[chip]), options.program, "--once"],
            rows.environment(folder, chip),
        )
        for chip in options.chips
    ]
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(options.jobs) as pool:
        parts = [
            pool.submit(rows.limits, *command, wanted, core, chip, mesa, options.listings)
            for chip, core, command in zip(options.chips, cores, started)
        ]
        found = [limits for part in parts for limits in part.result()]
    for limits in found:
        if limits.problem:
            print(f"{limits.chip}: {limits.row}: {limits.problem}")
    told, worse = limits_page.compare(TABLE, found) if options.compare else ([], False)
    known = limits_page.stored(options.json) if options.merge else {}
    known.update({(limits.row, limits.chip): limits for limits in found})
    everything = list(known.values())
    if options.json:
        limits_page.store(options.json, everything)
    if options.write:
        limits_page.write(options.write, everything)
    else:
        print(limits_page.tables(found))
    if options.compare:
        print("\n".join(told) or "no loop is worse than in the stored table")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
