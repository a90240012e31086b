"""The work of a training step of each of the ten networks of `benches/peers`, with the kernels of a
GPU: dispatches and bytes may not exceed the counts in `counts.json` by more than 2 %. If a step
takes less, `python tests/python/test_counts.py` writes the file again. The machine should be idle:
the recurrent networks take more dispatches on an adapter that seems slow.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = Path(__file__).parents[2] / "benches/steps.py"
KNOWN = Path(__file__).with_name("counts.json")
NAMES = ("dispatches", "bytes")


def networks() -> list[str]:
    """The keys of the networks. Modules beside theirs have the names of others, so `sys.path` stays
    as it is.
    """
    spec = importlib.util.spec_from_file_location("networks", STEPS.parent / "peers/networks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [made.key for made in module.NETWORKS]


def counted(key: str) -> dict[str, int]:
    """The counts of a network's step."""
    command = [sys.executable, STEPS, "counts", "--own", key, "WGPU:0"]
    # Counts depend on the kind of adapter.
    variables = {**os.environ, "TF_WGPU_PROFILE": "nvidia"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: told[name] for name in NAMES}


@pytest.mark.nightly
@pytest.mark.parametrize("key", networks())
def test_a_step_takes_no_more_work_than_before(key: str):
    known = json.loads(KNOWN.read_text(encoding="utf-8"))[key]
    found = counted(key)
    for name in NAMES:
        assert found[name] <= known[name] * 1.02, (name, known, found)


def main() -> None:
    """Writes the file."""
    found = {key: counted(key) for key in networks()}
    KNOWN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
