"""drivers [TARGET ...]: compilers of real GPUs, and Microsoft's, on a machine without a GPU.

Fetches what it needs into --folder, compiles shader variants of all families with each compiler and
prints one table. Exits with 1 if a variant was refused, or spills registers where kernels choose
it. docs/DRIVERS.md tells the rest.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import compilers
import dxc
import fetch
import report
from chips import AMD, APPLE, CHIPS

ROOT = Path(__file__).parents[2]
#: Every N-th variant is compiled: all of them if the compiler is fast.
EVERY = {
    **{name: 8 if chip.vendor in (AMD, APPLE) else 32 for name, chip in CHIPS.items()},
    "navi31": 1,
    "dxc": 8,
}
#: The same for continuous integration. Intel's GPUs are left out, because their shim is built from
#: source.
SAMPLE = {"navi31": 8, "gfx1201": 32, "ada": 64, "m1": 64, "adreno740": 64, "dxc": 61}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="drivers", description=__doc__.split("\n\n")[0])
    every = [*CHIPS, report.DXC]
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(every))
    parser.add_argument("--sample", action="store_true", help="the fixed sample of CI")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/drivers")
    parser.add_argument("--every", type=int, help="compile each N-th variant")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time")
    parser.add_argument("--family", help="only this family's variants")
    parser.add_argument("--contains", help="only variants with this text in their labels")
    parser.add_argument(
        "--program", type=Path, default=ROOT / "target/debug/examples/compile", help="compile"
    )
    parser.add_argument("--json", type=Path, help="file for what was found of each variant")
    parser.add_argument("--write", type=Path, help="page whose table gets the rows")
    options = parser.parse_args()
    options.targets = options.targets or (list(SAMPLE) if options.sample else every)
    if unknown := set(options.targets) - set(every):
        parser.error(f"no compiler {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    return options


def main() -> int:
    """Runs it."""
    options = arguments()
    if not fetch.is_supported():
        print("drivers: left out: the packages are those of Debian 12 on x86-64")
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    fetch.fetch_newest(folder)
    chosen = [f"--family={options.family}"] if options.family else []
    chosen += [f"--contains={options.contains}"] if options.contains else []
    results = []
    for target in options.targets:
        usual = SAMPLE if options.sample else EVERY
        every = options.every or usual.get(target, EVERY[target])
        compile_all = (
            dxc.compile_all if target == report.DXC else partial(compilers.compile_all, target)
        )
        results.append(compile_all(folder, options.program, every, options.jobs, chosen))
        print("\n".join([*report.details(results[-1]), ""]), flush=True)
    print("\n".join([report.HEAD, *(report.row(result) for result in results)]))
    if options.write:
        report.write(options.write, results)
    if options.json:
        found = [dataclasses.asdict(result) for result in results]
        options.json.write_text(json.dumps(found, indent=1))
    bad = any(
        r.problem or not r.variants or any(report.is_bad(v) for v in r.variants) for r in results
    )
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
