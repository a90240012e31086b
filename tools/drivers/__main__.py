"""drivers [TARGET ...]: other drivers and the real compilers of AMD, Intel and Microsoft, on a
machine without a GPU.

Fetches what it needs into --folder, compiles shader variants of all families with each compiler and
prints one table. Exits with 1 if a variant was refused, or spills registers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import compilers
import fetch
import report

ROOT = Path(__file__).parents[2]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="drivers", description=__doc__.split("\n\n")[0])
    parser.add_argument("targets", nargs="*", default=list(compilers.AMD), metavar="TARGET")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/drivers")
    parser.add_argument("--every", type=int, default=1, help="compile each N-th variant")
    parser.add_argument(
        "--program", type=Path, default=ROOT / "target/release/examples/compile", help="compile"
    )
    parser.add_argument("--json", type=Path, help="file for what was found of each variant")
    return parser.parse_args()


def main() -> int:
    """Runs it."""
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    fetch.fetch(folder)
    results = []
    for target in options.targets:
        results.append(compilers.compile_all(folder, options.program, target, options.every))
        print("\n".join([*report.details(results[-1]), ""]), flush=True)
    print("\n".join([report.HEAD, *(report.row(result) for result in results)]))
    if options.json:
        found = [dataclasses.asdict(result) for result in results]
        options.json.write_text(json.dumps(found, indent=1))
    bad = any(r.problem or any(v.refused or v.spills for v in r.variants) for r in results)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
