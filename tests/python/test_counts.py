"""The work of a training step of each of the ten networks of `benches/peers`: dispatches and bytes
may not grow by more than 2 % over `counts.json`, which holds what they were. A step that takes less
is good news, and `python tests/python/test_counts.py` writes the file again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = Path(__file__).parents[2] / "benches/steps.py"
sys.path.insert(0, str(STEPS.parent / "peers"))
from networks import NETWORKS  # noqa: E402

KNOWN = Path(__file__).with_name("counts.json")
NAMES = ("dispatches", "bytes")


def counted(key: str) -> dict[str, int]:
    """The counts of a network's step."""
    command = [sys.executable, STEPS, "counts", "--own", key, "WGPU:0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: told[name] for name in NAMES}


@pytest.mark.nightly
@pytest.mark.parametrize("key", [made.key for made in NETWORKS])
def test_a_step_takes_no_more_work_than_before(key: str):
    known = json.loads(KNOWN.read_text(encoding="utf-8"))[key]
    found = counted(key)
    for name in NAMES:
        assert found[name] <= known[name] * 1.02, (name, known, found)


def main() -> None:
    """Writes the file."""
    found = {made.key: counted(made.key) for made in NETWORKS}
    KNOWN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
