"""Processes of TensorFlow's strategies: scripts of tests/python/distribute, alone or as tasks of a
cluster on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "distribute"
TWO = {"TF_WGPU_VISIBLE_DEVICES": "0,0"}
ONE = {"TF_WGPU_VISIBLE_DEVICES": "0"}


def start(script: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
    """Starts a script."""
    return subprocess.Popen(
        [sys.executable, str(SCRIPTS / script), *arguments],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The values that a script prints at its end."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1])


def cluster(**jobs: int) -> dict[str, list[str]]:
    """Addresses on this machine for the given number of tasks of each job, with unused ports."""
    with contextlib.ExitStack() as open_until_all_are_known:
        spec: dict[str, list[str]] = {job: [] for job in jobs}
        for job in (job for job, count in jobs.items() for _ in range(count)):
            free = open_until_all_are_known.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            spec[job].append(f"localhost:{free.getsockname()[1]}")
    return spec


def task(spec: dict[str, list[str]], job: str, index: int) -> dict[str, str]:
    """The variable that makes a process one task of a cluster."""
    return {"TF_CONFIG": json.dumps({"cluster": spec, "task": {"type": job, "index": index}})}
