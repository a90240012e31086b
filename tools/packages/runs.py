"""Runs one test file on one device, in a separate process, and reads the outcomes.

This module does not know what a package's tests are, or whether an outcome is bad.
"""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from catalogue import HERE, Package

#: How often a file whose process died is continued behind the case in which it died.
RESTARTS = 5
#: The case that stands for a file which cannot be imported.
IMPORT = "(import)"


class Limits(NamedTuple):
    """The seconds that a case and a process may take."""

    case: int
    process: int


class Outcome(NamedTuple):
    """The outcome of a case: "passed", "skipped" or "failed", and the error's text."""

    outcome: str
    message: str = ""


class Runner(NamedTuple):
    """Runs the files of a package."""

    package: Package
    python: Path
    root: Path
    results: Path
    select: str
    limits: Limits

    def outcomes(self, file: str, device: str) -> Path:
        """The path at which the outcomes of a file on a device are kept. It exists when the file
        has run to its end.
        """
        return self.results / device / (file.replace("/", ".") + ".jsonl")

    def run(self, file: str, device: str) -> dict[str, Outcome]:
        """The outcome of each case of a file, from an earlier run or a new one."""
        kept = self.outcomes(file, device)
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            unfinished = kept.with_suffix(".unfinished")
            start = time.monotonic()
            for _ in range(1 + RESTARTS):
                ended = self.process(file, device, unfinished)
                if ended in (0, 1, 5) or (ended == 2 and IMPORT in outcomes_in(unfinished)):
                    break
                blame(unfinished, ended)
            if not unfinished.exists():
                unfinished.touch()
            with unfinished.open("a", encoding="utf-8") as opened:
                opened.write(json.dumps({"seconds": round(time.monotonic() - start)}) + "\n")
            unfinished.rename(kept)
        return outcomes_in(kept)

    def process(self, file: str, device: str, outcomes: Path) -> int | str:
        """Runs pytest once; returns its exit status, or the reason why it was ended."""
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "KERAS_BACKEND": "tensorflow",
            "PACKAGES_OUTCOMES": str(outcomes),
            "PACKAGES_CASE_LIMIT": str(self.limits.case),
            "PACKAGES_VALUES": str(self.results / "values" / file.replace("/", ".")),
            "PACKAGES_DEVICE": device,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(self.root)]),
            **dict(self.package.environment),
        }
        if device == "cpu":
            environment["TF_WGPU_VISIBLE_DEVICES"] = "-1"
        # `-c` keeps out the package's own configuration, which asks for plugins.
        options = ["-q", "-c", os.devnull, f"--rootdir={self.root}", "-p", "no:cacheprovider"]
        if self.select:
            options += ["-k", self.select]
        with outcomes.with_suffix(".log").open("a", encoding="utf-8") as log:
            try:
                return subprocess.run(
                    [self.python, "-m", "pytest", *options, "-p", "recorder", file],
                    cwd=self.root,
                    env=environment,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    timeout=self.limits.process,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return f"more than {self.limits.process} s"


def outcomes_in(file: Path) -> dict[str, Outcome]:
    """The outcomes that `recorder.py` has written."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {
        line["case"]: Outcome(line["outcome"], line["message"]) for line in lines if "case" in line
    }


def blame(outcomes: Path, ended: int | str) -> None:
    """Writes the outcome of the case in which the process died."""
    text = outcomes.read_text(encoding="utf-8") if outcomes.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    done = {line["case"] for line in lines if "case" in line}
    begun = [line["begun"] for line in lines if "begun" in line and line["begun"] not in done]
    line = {
        "case": begun[-1] if begun else "(process)",
        "outcome": "failed",
        "message": f"the process ended: {ended}",
    }
    with outcomes.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")
