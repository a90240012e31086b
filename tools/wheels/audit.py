"""auditwheel's findings about a wheel for Linux: it applies the rules of PEP 600."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from elf import number
from systems import System

TAG = re.compile(r"platform\s+tag: \"manylinux_(\d+)_(\d+)_(\w+)\"")


def audit(wheel: Path, system: System) -> tuple[list[str], list[str]]:
    """auditwheel's tag for the wheel, and the problems with it."""
    command = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return judge(f"{done.stdout}{done.stderr}", system)


def judge(said: str, system: System) -> tuple[list[str], list[str]]:
    """Finds the tag in auditwheel's output, and the problems."""
    found = TAG.search(said)
    if found is None:
        return [], [f"auditwheel finds no tag for it: {' '.join(said.split())[-300:]}"]
    tag = f"manylinux_{found[1]}_{found[2]}_{found[3]}"
    fits = number(f"{found[1]}.{found[2]}") <= number(system.oldest)
    fits &= found[3] == system.triple.partition("-")[0]
    return [f"auditwheel: {tag}"], [] if fits else [f"auditwheel finds {tag} only"]
