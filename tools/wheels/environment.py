"""The virtual environment of this tool, with the packages of requirements.txt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-wheels"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def enter() -> None:
    """Continues in the environment, which is made if it is missing or out of date."""
    made_of = f"{REQUIREMENTS.read_text(encoding='utf-8')}{sys.version}"
    marker, python = VENV / ".setup", VENV / "bin/python"
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    if not marker.exists() or marker.read_text(encoding="utf-8") != made_of:
        subprocess.run([ROOT / "tools/system-packages", "python", sys.executable], check=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--requirement", REQUIREMENTS], check=True)
        marker.write_text(made_of, encoding="utf-8")
    os.execv(python, [str(python), *sys.argv])
