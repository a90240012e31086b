#!/usr/bin/env python3
"""packages [PACKAGE...]: the tests of other people's packages, and programs on them, on WGPU and on
the CPU. The status is 1 when cases fail on WGPU alone.

Run it with a Python that has TensorFlow, Keras, pytest and the plug-in. Each package has an
environment of its own in the folder, each file is a process of its own. Outcomes are kept, the
CPU's for good and WGPU's until the library changes, so that an interrupted run goes on where it
stopped: `--fresh` forgets WGPU's, `--keep` keeps those of an earlier library and runs again the
files alone that had cases failing on WGPU alone.
"""

import argparse
import hashlib
import importlib.metadata
import json
import resource
import sys
import time
from pathlib import Path

from catalogue import HERE, PACKAGES, Package
from environments import environment, root
from ledger import Counts, Ledger, count
from runs import Limits, Outcome, Runner
from table import alone, markdown, row, write
from tensorflow_wgpu import library_path

ROOT = HERE.parent.parent


def files(package: Package, folder: Path, sample: bool) -> list[str]:
    """A package's test files, relative to the folder that they are in."""
    found = sorted({p for pattern in package.files for p in folder.glob(pattern)})
    names = [str(p.relative_to(folder)) for p in found]
    if sample:
        missing = set(package.sample) - set(names)
        if missing:
            raise SystemExit(f"{package.name} has no {', '.join(sorted(missing))}")
        return list(package.sample)
    return [n for n in names if not any(part in n for part in package.without)]


def both(runner: Runner, file: str) -> tuple[dict[str, Outcome], dict[str, str]]:
    """WGPU's outcomes of a file, and the cases that failed only there.

    The CPU runs a file if it failed on WGPU. A program's values on WGPU are compared with the
    CPU's, so for programs the CPU runs first.
    """
    cpu = runner.run(file, "cpu") if runner.package.programs else {}
    wgpu = runner.run(file, "wgpu")
    if any(outcome.outcome == "failed" for outcome in wgpu.values()):
        cpu = cpu or runner.run(file, "cpu")
    return wgpu, alone(wgpu, cpu)


def forget(results: Path, fresh: bool, keep: bool) -> None:
    """Removes WGPU's outcomes that came from another library."""
    library, marker = hashlib.sha256(library_path().read_bytes()).hexdigest(), results / "library"
    old = not marker.exists() or marker.read_text() != library
    if fresh or (old and not keep):
        for outcomes in results.glob("*/wgpu/*"):
            outcomes.unlink()
    elif old:
        for report in results.glob("*/alone.json"):
            for file in json.loads(report.read_text()):
                for outcomes in (report.parent / "wgpu").glob(file.replace("/", ".") + ".*"):
                    outcomes.unlink()
    marker.write_text(library)


def main() -> int:
    """Runs the packages that the command line names, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="a part of its name")
    parser.add_argument("--files", default="", help="a part of the files' names")
    parser.add_argument("--sample", action="store_true", help="the sample that CI runs")
    parser.add_argument("--folder", type=Path, default=ROOT / "target" / "packages")
    parser.add_argument("--fresh", action="store_true", help="forget WGPU's outcomes")
    parser.add_argument("--keep", action="store_true", help="keep those of another library")
    parser.add_argument("--case", type=int, default=180, help="processor seconds for a case")
    parser.add_argument("--process", type=int, default=1800, help="seconds for a file")
    parser.add_argument(
        "--minutes",
        type=float,
        help="begin no file after this time; with 0, the table of what is there",
    )
    parser.add_argument("--write", type=Path, help="write the table into this page")
    parser.add_argument(
        "--ledger", type=Path, help="leave out the files that it says passed, and add others to it"
    )
    options = parser.parse_args()
    ledger, own = Ledger(options.ledger), importlib.metadata.version("tensorflow-wgpu")
    folder = options.folder.resolve()
    version = importlib.metadata.version("tensorflow")
    results = folder / f"results-{version}{'-sample' if options.sample else ''}"
    results.mkdir(parents=True, exist_ok=True)
    forget(results, options.fresh, options.keep)
    start, rows, failed, unknown = time.monotonic(), [], [], set(options.packages)

    def passed() -> float:
        return time.monotonic() - start

    for package in PACKAGES:
        named = {part for part in options.packages if part in package.name}
        unknown -= named
        if (options.packages and not named) or (options.sample and not package.sample):
            continue
        python = environment(package, folder)
        top = root(package, python, folder)
        select = package.sample_select if options.sample else package.select
        runner = Runner(
            package,
            python,
            top,
            results / package.name.replace(" ", "-"),
            select,
            Limits(options.case, options.process),
        )
        ours: dict[str, dict[str, str]] = {}
        counted: list[Counts] = []
        left_out = 0
        for file in files(package, top, options.sample):
            late = options.minutes is not None and passed() >= 60 * options.minutes
            if options.files not in file:
                continue
            known = None if options.fresh else ledger.find(package.name, file)
            if known:
                counted.append(known)
                continue
            if late and not runner.outcomes(file, "wgpu").exists():
                left_out += 1
                continue
            wgpu, only = both(runner, file)
            counted.append(count(wgpu, only, own))
            ledger.add(package.name, file, counted[-1])
            if only:
                ours[file] = only
            bad = sum(outcome.outcome == "failed" for outcome in wgpu.values())
            print(
                f"{package.name}: {file}: {len(wgpu)} cases, {bad} failed, {len(only)} on WGPU"
                f" alone, {passed():.0f} s",
                flush=True,
            )
        if not counted and not left_out:
            continue
        runner.results.mkdir(exist_ok=True)
        flat = {f"{file}::{case}": m for file, only in ours.items() for case, m in only.items()}
        (runner.results / "alone.json").write_text(json.dumps(ours, indent=1))
        rows.append(row(package.name, left_out, counted))
        known = [part for part, _ in package.reasons]
        failed += [
            f"{package.name}: {case}: {message}"
            for case, message in flat.items()
            if not any(part in case for part in known)
        ]
    if unknown:
        parser.error(f"no package is called {', '.join(sorted(unknown))}")
    (results / "rows.json").write_text(json.dumps([r._asdict() for r in rows], indent=1))
    print(markdown(rows), end="")
    for case in failed:
        print(f"on WGPU alone: {case}")
    if options.write:
        write(options.write, rows, machine(), reasons([r.package for r in rows if r.files]))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{passed():.0f} s, of processor time {used.ru_utime + used.ru_stime:.0f} s")
    # CI reads the last line.
    print(f"{sum(r.passed for r in rows)} passed, {len(failed)} failed")
    return bool(failed)


def reasons(ran: list[str]) -> list[str]:
    """The cases of packages that have run which fail on WGPU alone without a fault of WGPU."""
    packages = [package for package in PACKAGES if package.name in ran]
    return [f"{p.name}, `{case}`: {why}" for p in packages for case, why in p.reasons]


def machine() -> str:
    """The machine on which the table was made."""
    import tensorflow as tf

    details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("WGPU")[0])
    version = importlib.metadata.version("tensorflow-wgpu")
    return f"tensorflow-wgpu {version}, TensorFlow {tf.__version__}, {details['device_name']}."


if __name__ == "__main__":
    sys.exit(main())
