"""Shape arguments of any size are TensorFlow's errors, or give the CPU's results; the process
continues.

`hostile.py` defines the tries. They run in separate processes, because TensorFlow's shapes end the
process at a failed CHECK.
"""

import subprocess
import sys

import hostile
import pytest

pytestmark = pytest.mark.nightly

#: Processes that share the tries.
PARTS = 2
#: Seconds that one process may take; without other load on the machine it takes 20.
PATIENCE = 400
#: Deaths after which a part is given up.
DEATHS = 5


def walk(part: int) -> tuple[list[str], dict[str, int]]:
    """The failures in one part, and the number of tries of each kernel."""
    wrong: list[str] = []
    ran: dict[str, int] = {}
    first = "0"
    for _ in range(DEATHS):
        command = [sys.executable, hostile.__file__, str(part), str(PARTS), first]
        try:
            process = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            output, errors, how = (
                process.stdout,
                process.stderr,
                f"ends the process with status {process.returncode}",
            )
        except subprocess.TimeoutExpired as late:
            output, errors = ((text or b"").decode() for text in (late.stdout, late.stderr))
            how = f"does not end within {PATIENCE} s"
        word = last = ""
        for line in output.splitlines():
            word, _, text = line.partition(" ")
            if word == "TRY":
                first, _, last = text.partition(" ")
            elif word == "CPU":
                last = f"{text} on the CPU"
            elif word == "WRONG":
                wrong.append(text)
            elif word == "RAN":
                count, _, kernel = text.partition(" ")
                ran[kernel] = int(count)
        if word == "END":
            return wrong, ran
        reason = [
            line
            for line in errors.splitlines()
            if "Check failed" in line or "memory allocation" in line
        ]
        wrong.append(f"{last}: {how}: {' '.join(reason or errors.splitlines()[-3:])}")
    return [*wrong, "too many deaths, the rest was not tried"], ran


@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_shapes(part: int) -> None:
    wrong, ran = walk(part)
    without = [str(k) for k in hostile.registered()[part::PARTS] if not ran.get(str(k))]
    assert not wrong, "\n".join(wrong)
    assert not without, f"kernels without a try: {without}"
