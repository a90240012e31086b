"""`python -m tensorflow_wgpu`: says what works on this machine, and what to do about the rest."""

from __future__ import annotations

import argparse
import json
import sys

from tensorflow_wgpu import _doctor


def main() -> int:
    """Prints the findings. The exit code is 0 when TensorFlow can compute on WGPU, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tensorflow_wgpu", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--ops", action="store_true", help="list the ops with their types")
    arguments = parser.parse_args()
    found = _doctor.examine()
    print(json.dumps(found, indent=2) if arguments.json else _doctor.text(found, arguments.ops))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
