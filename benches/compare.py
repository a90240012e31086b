"""Two runs of a benchmark, side by side: a table of ratios, and a picture.

    python benches/compare.py before.json after.json
    python benches/compare.py lavapipe.json h200.json --by ratio --plot compared.png
    python benches/compare.py gpu-kit.json gpu-kit.json --runs "matrix units off" "matrix units on"

Reads what `kernels --json`, `python -m tensorflow_wgpu.bench --json` or the GPU kit wrote. A ratio
above 1 means that the second run is faster. Of two kits it tells too which tests end otherwise.
Needs nothing but Python; pictures need matplotlib.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any

#: The figures in a row of `kernels`.
KERNELS = ("ms", "ratio", "ratio_cpu", "cpu_s", "first_ms", "host_us", "dispatches", "bytes")
#: The kinds of files: the names that identify a row, and the figures that can be compared. The
#: first figure is the default.
KINDS = {
    "kernels": (("family", "name"), KERNELS),
    "gpu-kit": (("run", "family", "name"), KERNELS),
    "models": (
        ("model", "phase", "device"),
        ("step_s", "host_s", "cpu_s", "first_s", "dispatches", "bytes"),
    ),
}


class UnreadableError(ValueError):
    """The file does not come from a benchmark."""


def read(path: str) -> dict[str, Any]:
    """Reads a run."""
    try:
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
    except (OSError, json.JSONDecodeError) as error:
        raise UnreadableError(f"{path}: {error}") from error
    if not isinstance(run, dict) or run.get("kind") not in KINDS or run.get("schema") != 1:
        raise UnreadableError(
            f"{path} was written by none of kernels --json, tensorflow_wgpu.bench --json, gpu-kit"
        )
    return run


def compared(
    before: dict[str, Any], after: dict[str, Any], by: str
) -> list[tuple[str, float, float]]:
    """The rows that both runs have, with the figure of each, in the first run's order."""
    names, _ = KINDS[before["kind"]]

    def rows(run: dict[str, Any]) -> dict[str, float]:
        named = {
            " ".join(str(row[n]).removeprefix("/device:") for n in names): row.get(by)
            for row in run["rows"]
        }
        return {name: float(value) for name, value in named.items() if value}

    first, second = rows(before), rows(after)
    return [(name, first[name], second[name]) for name in first if name in second]


def of_run(kit: dict[str, Any], name: str) -> dict[str, Any]:
    """One run of a kit, in the format of `kernels --json`."""
    rows = [row for row in kit["rows"] if row["run"] == name]
    if not rows:
        names = ", ".join(dict.fromkeys(row["run"] for row in kit["rows"]))
        raise UnreadableError(f"the kit has no run {name!r}; there are {names}")
    return {**kit, "kind": "kernels", "rows": rows}


def tests(kit: dict[str, Any]) -> dict[str, str]:
    """The outcomes of a kit's tests that did not pass, by their names."""
    ends = {}
    for suite in kit["suites"]:
        ends |= {f"{suite['name']}: {t['name']}": "failed" for t in suite["failed"]}
        ends |= {f"{suite['name']}: {t['name']}": "did not end" for t in suite["unfinished"]}
    return ends


def changed_tests(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The tests of two kits whose outcomes differ, a line for each, and the numbers of failures."""
    first, second = tests(before), tests(after)
    lines = [f"Tests that did not pass: {len(first)} of the first, {len(second)} of the second."]
    for name in sorted(first.keys() | second.keys()):
        ends = [kit.get(name, "not among the failures") for kit in (first, second)]
        if ends[0] != ends[1]:
            lines.append(f"- {name}: {ends[0]}, then {ends[1]}")
    return lines


def title(run: dict[str, Any]) -> str:
    """The place and time of a run."""
    adapter = run["adapter"]["name"] if run.get("adapter") else "no WGPU device"
    return f"{adapter}, {run['host']['cpu']}, {run['date']}"


def table(rows: list[tuple[str, float, float]], by: str) -> str:
    """The ratios as a Markdown table, with the geometric mean."""
    lines = [f"| Row | {by} of the first | of the second | first / second |", "|---|---|---|---|"]
    lines += [f"| {name} | {a:.4g} | {b:.4g} | {a / b:.2f} |" for name, a, b in rows]
    lines.append(f"| Geometric mean of {len(rows)} | | | {mean(rows):.2f} |")
    return "\n".join(lines)


def mean(rows: list[tuple[str, float, float]]) -> float:
    """The geometric mean of the ratios."""
    return math.exp(sum(math.log(a / b) for _, a, b in rows) / len(rows))


def plot(rows: list[tuple[str, float, float]], titles: list[str], by: str, path: str) -> None:
    """A bar for each ratio, around 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    height = max(2.5, 0.22 * len(rows) + 1.5)
    figure, axes = pyplot.subplots(figsize=(9.0, height), layout="constrained")
    ratios = [a / b for _, a, b in rows]
    places = list(range(len(rows)))
    colors = ["tab:green" if ratio >= 1 else "tab:red" for ratio in ratios]
    # Bars start at 1, which is in the middle of the logarithmic axis.
    axes.barh(places, [ratio - 1 for ratio in ratios], left=1, color=colors)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(places, [name for name, _, _ in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(f"{by}, first / second")
    axes.set_title(
        "\n".join(f"{place}: {text}" for place, text in zip(("first", "second"), titles)),
        fontsize=8,
    )
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> int:
    """Compares the runs that the command line names. The exit code is 2 if that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="JSON of the first run")
    parser.add_argument("after", help="JSON of the second run")
    parser.add_argument(
        "--by", help="the figure, such as ms, ratio, step_s, dispatches; time without it"
    )
    parser.add_argument(
        "--runs",
        nargs=2,
        metavar=("FIRST", "SECOND"),
        help="of GPU kits: a run of the first file, and one of the second",
    )
    parser.add_argument("--plot", help="PNG of the ratios, which needs matplotlib")
    options = parser.parse_args()
    try:
        runs = [read(options.before), read(options.after)]
        if options.runs:
            if any(run["kind"] != "gpu-kit" for run in runs):
                raise UnreadableError("--runs is for two files of the GPU kit")
            runs = [of_run(run, name) for run, name in zip(runs, options.runs)]
    except UnreadableError as error:
        print(error, file=sys.stderr)
        return 2
    if runs[0]["kind"] != runs[1]["kind"]:
        print(
            f"the files are of two kinds, {runs[0]['kind']} and {runs[1]['kind']}", file=sys.stderr
        )
        return 2
    figures = KINDS[runs[0]["kind"]][1]
    by = options.by or figures[0]
    if by not in figures:
        print(f"{by} is no figure of these files; there are {', '.join(figures)}", file=sys.stderr)
        return 2
    rows = compared(*runs, by)
    if not rows:
        print("the files have no row in common", file=sys.stderr)
        return 2
    titles = [title(run) for run in runs]
    print(f"First: {titles[0]}\nSecond: {titles[1]}\n\n{table(rows, by)}")
    if runs[0]["kind"] == "gpu-kit":
        print("\n" + "\n".join(changed_tests(*runs)))
    if options.plot:
        try:
            plot(rows, titles, by, options.plot)
        except ImportError:
            print("pictures need matplotlib: python -m pip install matplotlib", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
