"""host [NAME=PYTHON[,VARIABLE=VALUE...] ...]: the host's time for a training step, under a driver
that executes nothing.

Each column is an environment with the plug-in, with variables of its own, or `.venv`. Mesa's driver
for AMD's GPUs compiles the shaders, and its shim in place of the kernel's driver throws submissions
away: what remains is TensorFlow, the plug-in, wgpu and the driver's own work. Fetches the driver
(Debian 12 on x86-64; tools/drivers), compiles `finished.c` with `cc`, runs the columns in turn,
prints a table of medians.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[2] / "tools/drivers"))
import cases
import chips
import fetch

ROOT = Path(__file__).parents[2]
USUAL = ROOT / ".venv/bin/python"


class Column(NamedTuple):
    """An environment to measure."""

    name: str
    python: str
    variables: dict[str, str]


def column(text: str) -> Column:
    """The column of an argument."""
    name, _, rest = text.partition("=")
    python, *variables = rest.split(",")
    if not Path(python).exists():
        raise argparse.ArgumentTypeError(f"there is no {python!r}")
    return Column(name, python, dict(v.split("=", 1) for v in variables))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="host", description=__doc__.partition("\n\n")[0])
    parser.add_argument("columns", nargs="*", type=column, metavar="NAME=PYTHON")
    parser.add_argument("--cases", nargs="+", default=list(cases.CASES), choices=cases.CASES)
    parser.add_argument("--rounds", type=int, default=3, help="processes for each column")
    parser.add_argument("--seconds", type=float, default=2.0, help="for a case in a process")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/drivers")
    parser.add_argument("--chip", default="navi31", help="a GPU of tools/drivers")
    parser.add_argument("--system", action="store_true", help="the system's driver, which executes")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    if not options.columns:
        if not USUAL.exists():
            parser.error("name an environment, or make .venv by `make install`")
        options.columns = [Column("now", str(USUAL), {})]
    return options


def finished(folder: Path) -> Path:
    """The library that says that the GPU has finished all work, compiled if need be."""
    library, source = folder / "finished.so", Path(__file__).with_name("finished.c")
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


def measure(options: argparse.Namespace, chosen: Column) -> dict[str, cases.Figures]:
    """Measures all cases once, in a process of their own."""
    program = [chosen.python, Path(cases.__file__), "--seconds", str(options.seconds)]
    variables = os.environ | {"TF_WGPU_CACHE": "off"}
    if not options.system:
        folder, chip = options.folder.resolve(), chips.CHIPS[options.chip]
        # Python looks for its environment where it believes to have been started.
        loader, *rest, shim = chips.starter(folder, chip)
        rest.append(f"{finished(folder)} {shim}")
        program = [loader, "--argv0", chosen.python, *rest, *program]
        # Nothing is executed, so no number is right.
        variables = chips.environment(folder, chip) | {"TF_WGPU_CHECK": "off"}
        variables["TF_WGPU_COOPERATIVE_MATRIX"] = "0"
    variables |= {"TF_CPP_MIN_LOG_LEVEL": "3"} | chosen.variables
    done = subprocess.run(
        [*program, *options.cases],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{chosen.name}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: cases.Figures(**figures) for name, figures in found.items()}


def text(figures: cases.Figures) -> str:
    """A cell."""
    caller, executor, plugin, wall = (1e3 * seconds for seconds in figures[:4])
    threads = f"{caller:.2f} + {executor:.2f} + {plugin:.2f}"
    return f"{1e3 * figures.cpu:.2f} = {threads}; {wall:.2f}; {figures.dispatches:.0f}"


def main() -> int:
    """Prints the table."""
    options = arguments()
    driver = "the system's driver"
    if not options.system:
        if not fetch.is_supported():
            print("host: left out: the driver comes from packages of Debian 12 on x86-64")
            return 0
        options.folder.mkdir(parents=True, exist_ok=True)
        fetch.fetch_newest(options.folder.resolve())
        driver = f"{options.chip}, Mesa {fetch.newest_version(options.folder)}, nothing executed"
    found: dict[str, list[dict[str, cases.Figures]]] = {c.name: [] for c in options.columns}
    for _ in range(options.rounds):
        for chosen in options.columns:
            found[chosen.name].append(measure(options, chosen))
    print(f"{datetime.date.today()}, {driver}, `benches/host {shlex.join(sys.argv[1:])}`\n")
    print("For each step: milliseconds of processors, in the calling thread, TensorFlow's threads")
    print("and the plug-in's; milliseconds of the wall clock; dispatches.\n")
    print("| Step | " + " | ".join(found) + " | Processors, last to first |")
    print("|---|" + "---|" * (len(found) + 1))
    for case in options.cases:
        figures = [
            cases.Figures(*map(statistics.median, zip(*(f[case] for f in rounds), strict=True)))
            for rounds in found.values()
        ]
        cells = [*map(text, figures), f"{figures[-1].cpu / figures[0].cpu:.2f}"]
        print(f"| {cases.CASES[case].about} | " + " | ".join(cells) + " |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
