"""Shape arguments of any size are errors of TensorFlow's, or give what they give on the CPU; the
process lives on.

`hostile.py` says what is tried, in processes of its own: TensorFlow's shapes end the process at a
failed CHECK.
"""

import subprocess
import sys

import hostile
import pytest

pytestmark = pytest.mark.nightly

#: Processes that share the tries.
PARTS = 2
#: Seconds that one may take; those without other work on the machine take 20.
PATIENCE = 400
#: Deaths after which a part is given up.
DEATHS = 5


def walk(part: int) -> tuple[list[str], dict[str, int]]:
    """What went wrong in one part, and how many tries each kernel had."""
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
