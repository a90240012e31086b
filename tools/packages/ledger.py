"""The files that have run, with their counts, in a file that is committed: a whole run takes days,
and several machines share it.
"""

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from runs import Outcome


class Counts(NamedTuple):
    """The counts of a file's outcomes."""

    cases: int
    passed: int
    skipped: int
    failed_on_both: int
    #: Cases that failed only on WGPU, with their errors.
    alone: dict[str, str]
    #: The plug-in's version.
    version: str


def count(wgpu: dict[str, Outcome], only: dict[str, str], version: str) -> Counts:
    """Counts the outcomes of a file on WGPU. The cases of `only` failed there and not on the
    CPU.
    """
    counts = Counter(outcome.outcome for outcome in wgpu.values())
    both = counts["failed"] - len(only)
    return Counts(len(wgpu), counts["passed"], counts["skipped"], both, only, version)


class Ledger:
    """The ledger in a file; without a path it is empty and not stored."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: dict[str, dict[str, list]] = {}
        if path and path.exists():
            self.rows = json.loads(path.read_text(encoding="utf-8"))

    def find(self, package: str, file: str) -> Counts | None:
        """The counts of a file that has run without a failure on WGPU only."""
        row = self.rows.get(package, {}).get(file)
        counts = Counts(*row) if row else None
        return counts if counts and not counts.alone else None

    def add(self, package: str, file: str, counts: Counts) -> None:
        """Adds a file, and writes the ledger at once, a line for each file."""
        if not self.path:
            return
        self.rows.setdefault(package, {})[file] = list(counts)
        packages = []
        for name, files in sorted(self.rows.items()):
            lines = [f"  {json.dumps(f)}: {json.dumps(row)}" for f, row in sorted(files.items())]
            packages.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
        self.path.write_text("{\n" + ",\n".join(packages) + "\n}\n", encoding="utf-8")
