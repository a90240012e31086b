"""Compares a package's outcomes on the two devices, and writes the table."""

from pathlib import Path
from typing import NamedTuple

from ledger import Counts
from runs import Outcome

HEAD = """# Other people's packages

`make packages` runs the tests that other packages publish, and programs on libraries that publish
none, on WGPU and on the CPU: [CONTRIBUTING.md](../CONTRIBUTING.md#other-peoples-packages). A case
that fails on WGPU alone is a fault of the plug-in. A case that fails on both is the package's own,
often because it was written for an older TensorFlow. The table holds the files that have run.

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
    """The cases that fail on WGPU and not on the CPU, with the error."""
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


def write(page: Path, rows: list[Row], machine: str) -> None:
    """Writes the page of docs/."""
    page.write_text(HEAD + machine + "\n\n" + markdown(rows), encoding="utf-8")
