"""`python -m tensorflow_wgpu`: says what works on this machine, and what to do about the rest."""

from __future__ import annotations

import argparse
import json
import os
import sys

from tensorflow_wgpu import __version__, _doctor


def main() -> int:
    """Prints the findings. The exit code is 0 when TensorFlow can compute on WGPU, or when the
    self-test passed; else 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tensorflow_wgpu",
        description="Says what works on this machine, and what to do about the rest.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--ops", action="store_true", help="list the ops with their types")
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="compare a case of every family of kernels with TensorFlow's CPU",
    )
    arguments = parser.parse_args()
    if arguments.self_test:
        from tensorflow_wgpu.self_test import _report

        return _report.main(arguments.json)
    found = _doctor.examine()
    try:
        print(json.dumps(found, indent=2) if arguments.json else _doctor.text(found, arguments.ops))
        sys.stdout.flush()
    except BrokenPipeError:
        # As in `| head`. Python's end flushes once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
