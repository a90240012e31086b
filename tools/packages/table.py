"""Compares a package's outcomes on the two devices, and writes the table."""

import textwrap
from pathlib import Path
from typing import NamedTuple

from ledger import Counts
from runs import Outcome

HEAD = """# Other people's packages

Do other people's programs work on WGPU as they do on the CPU? `make packages` runs the tests that
packages on PyPI publish, such as Sonnet's and GPflow's, on both devices. For libraries that publish
no tests it runs programs of ours: *vision networks*, *keras-hub*, *microscopy* and *random
networks*.

A case that fails on WGPU alone is a fault of the plug-in, unless the page gives another reason
below the table. A case that fails on both is a fault of the package, often because it was written
for an older TensorFlow. *files* and *files not run* count files of tests, and the other columns
count the cases in the files that have run. [How to run the
tests](../CONTRIBUTING.md#other-peoples-packages).
"""


class Row(NamedTuple):
    """The numbers of a package."""

    package: str
    files: int
    files_not_run: int
    cases: int
    passed: int
    skipped: int
    failed_on_both: int
    failed_on_wgpu: int


def alone(wgpu: dict[str, Outcome], cpu: dict[str, Outcome]) -> dict[str, str]:
    """The cases that fail on WGPU and not on the CPU, with their errors."""
    return {
        case: outcome.message
        for case, outcome in wgpu.items()
        if outcome.outcome == "failed" and cpu.get(case, Outcome("absent")).outcome != "failed"
    }


def row(package: str, left_out: int, files: list[Counts]) -> Row:
    """Adds up the files of a package."""
    sums = [sum(getattr(file, name) for file in files) for name in Row._fields[3:7]]
    return Row(package, len(files), left_out, *sums, sum(len(file.alone) for file in files))


def markdown(rows: list[Row]) -> str:
    """The table, with the sums below."""
    names = [field.replace("_", " ").replace("wgpu", "WGPU alone") for field in Row._fields]
    lines = [
        "| " + " | ".join(names) + " |",
        "|---" + "|--:" * (len(names) - 1) + "|",
        *("| " + " | ".join(str(value) for value in row) + " |" for row in rows),
    ]
    sums = [sum(column) for column in list(zip(*rows))[1:]]
    lines.append("| all | " + " | ".join(str(value) for value in sums) + " |")
    return "\n".join(lines) + "\n"


def write(page: Path, rows: list[Row], machine: str, reasons: list[str]) -> None:
    """Writes the page of docs/: a table of the packages that have run, the names of the others, and
    the cases that fail on WGPU alone without a fault of WGPU, with their reasons.
    """
    ran = [row for row in rows if row.files]
    others = ", ".join(row.package for row in rows if not row.files)
    sentence = f"Not run yet: {others}." if others else ""
    head = "\n".join(textwrap.wrap(sentence, 100))
    text = [HEAD, *([head + "\n"] if head else []), machine + "\n", markdown(ran)]
    if reasons:
        text.append("These cases fail on WGPU alone, for these reasons:\n")
        items = (textwrap.wrap(f"- {r}", 100, subsequent_indent="  ") for r in reasons)
        text.append("\n".join("\n".join(lines) for lines in items) + "\n")
    page.write_text("\n".join(text), encoding="utf-8")
