"""Shape arguments of any size are TensorFlow's errors or right results, for every op with arguments in host memory.

The calls run in processes of their own (hostile_server.py), which name each call before they make it: TensorFlow ends a
process whose shapes are too large for it, where an op lets them through.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hostile_server import SUBJECTS

SERVER = Path(__file__).with_name("hostile_server.py")
# Seconds for one call.
HANG = 60
PARTS = 4
# Results that are right although the CPU's differ, by op, argument and value.
KNOWN = {
    # TensorFlow keeps 32 bits of a shift.
    ("Roll", "shift"): [2**40, 2**62, 2**63 - 1, -(2**63)],
    # Sums of the CPU that overflow.
    ("MatrixBandPart", "num_lower"): [-(2**63)],
    ("MatrixBandPart", "num_upper"): [-(2**63)],
    ("SparseSlice", "size"): [2**63 - 1],
    # The CPU keeps 32 bits of an extent.
    ("SparseSplit", "shape"): [2**40],
    # As TensorFlow's GPU does, indices that are out of range give zeros.
    ("GatherV2", "axis"): [-1],
}


class Server:
    """A process that answers."""

    def __init__(self, log: Path) -> None:
        # Little memory, so that large results fail at once and none is made.
        env = {**os.environ, "TF_WGPU_MAX_MEMORY": str(1 << 28)}
        with log.open("a") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-u", str(SERVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=env,
            )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("")

    def wrong(self, number: int) -> list[str]:
        """What is wrong with the calls of a subject; the process is gone where one ended it."""
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        found, call = [], f"subject {number}"
        while True:
            try:
                line = self.lines.get(timeout=HANG)
            except queue.Empty:
                self.process.kill()
                return [*found, f"{call}: it hangs"]
            if line == ".":
                return found
            if line == "":
                return [*found, f"{call}: the process ends with {self.process.wait()}"]
            if line.startswith("? "):
                call = line[2:]
            elif line.startswith(("= bad", "= cpu")):
                op, name, value = call.split()
                if int(value) not in KNOWN.get((op, name), []):
                    found.append(f"{call}: {line[2:]}")

    def end(self) -> None:
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait(timeout=HANG)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_shape_ends_a_process_or_gives_wrong_data(part: int, tmp_path: Path) -> None:
    found: list[str] = []
    server = None
    for number in range(part, len(SUBJECTS) + 1, PARTS):
        if server is None or server.process.poll() is not None:
            server = Server(tmp_path / "log")
        found += server.wrong(number)
    server.end()
    assert not found, "\n".join(found)


def test_the_ops_are_many() -> None:
    assert len(SUBJECTS) > 150
