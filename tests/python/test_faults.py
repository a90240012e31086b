"""Vulkan calls that fail during a training: the result is an error with advice or the right
numbers, no hang, no crash.

The fault layer (tests/fault_layer) makes them fail, in separate processes (fault_server.py). A
sample runs by default; `TF_WGPU_FAULTS=all`, which `make faults` sets, runs many more.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from fault_layer import behind

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("fault_server.py")
# The layer's own table: `vkName(parameters) [RESULTS]`.
TABLE = (ROOT / "tests/fault_layer/src/functions.rs").read_text()
CODES = {
    name: int(n.replace("_", ""))
    for name, n in re.findall(r"const (\w+): VkResult = (-?[\d_]+);", TABLE)
}
FUNCTIONS = {
    name: [CODES[r] for r in results.split(", ")]
    for name, results in re.findall(
        r"^    (vk\w+)(?:\([^)]*\))?\s+\[([\w, ]*)\]$", TABLE, re.MULTILINE
    )
}
# A training does not call them on this system, or not at a predictable time.
UNUSED = {
    "vkQueueSubmit2",
    "vkWaitForFences",
    "vkGetFenceStatus",
    "vkCreateFence",
    "vkCreateQueryPool",
    "vkGetQueryPoolResults",
    "vkFlushMappedMemoryRanges",
    "vkInvalidateMappedMemoryRanges",
    "vkDeviceWaitIdle",
    "vkQueueWaitIdle",
    "vkGetPipelineCacheData",
}
# Functions that a training calls again and again get more faults than those that it calls at its
# start.
FREQUENT = {
    "vkQueueSubmit",
    "vkWaitSemaphores",
    "vkAllocateMemory",
    "vkMapMemory",
    "vkCreateComputePipelines",
}
ALL = os.environ.get("TF_WGPU_FAULTS") == "all"
TIMEOUT, LOST = CODES["TIMEOUT"], CODES["LOST"]
ENDLESS = 2**64 - 1
# A training takes a second or two.
HANG = 180.0


class Answer(NamedTuple):
    """The outcome of a training."""

    word: str
    calls: int
    text: str


class Server:
    """A process in which calls fail."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER)],
                # Stored pipelines would hide failures to compile them.
                env={**environment, "TF_WGPU_CACHE": str(log.with_suffix(".cache"))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            if line.startswith("= "):
                self.lines.put(line[2:])
        self.lines.put(None)

    def ask(self, function: str, first: int, last: int, result: int) -> Answer:
        """Makes calls `first` to `last` return `result` in a training."""
        try:
            self.process.stdin.write(f"{function} {first} {last} {result}\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=HANG)
        except BrokenPipeError:
            line = None
        except queue.Empty:
            return Answer("bad", 0, f"it hangs\n{self.tail()}")
        if line is None:
            return Answer("bad", 0, f"the process died of {self._how()}\n{self.tail()}")
        word, calls, text = line.split(" ", 2)
        return Answer(word, int(calls), text.strip())

    def _how(self) -> str:
        code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def end(self) -> str:
        """Ends the process like a program; returns a description of the problem, if there is
        one.
        """
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            code = self.process.wait(timeout=HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return f"the process does not end\n{self.tail()}"
        return "" if code == 0 else f"at its end the process died of {self._how()}\n{self.tail()}"

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for a process behind the layer, which is built first."""
    return behind(tmp_path_factory.mktemp("layer"))


@pytest.fixture(scope="module")
def calls(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often a process calls each function until its first training is done."""
    server = Server(environment, tmp_path_factory.mktemp("count") / "log")
    answer = server.ask("vkQueueSubmit", 0, 0, 0)
    assert answer.word == "none", answer
    assert server.end() == ""
    return json.loads(answer.text)


def faults(function: str, calls: int) -> Iterator[tuple[int, int, int]]:
    """The faults to try: first and last call that fails, and the result."""
    results = FUNCTIONS[function]
    samples = min(calls, 12) if ALL else 2 if function in FREQUENT else 1
    # Not only the first and last call: positions are spread over the training, differently for each
    # function.
    shift = sum(function.encode()) % calls
    firsts = [1 + (shift + k * calls // samples) % calls for k in range(samples)]
    for k, first in enumerate(firsts):
        for result in results if ALL else [results[k % len(results)]]:
            yield first, first, result
            if result != TIMEOUT and ((ALL and k % 4 == 0) or result == LOST):
                yield first, ENDLESS, result
    if not ALL and function in FREQUENT and LOST in results:
        yield firsts[0], ENDLESS, LOST


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f not in UNUSED])
def test_a_training_survives(
    function: str, environment: dict[str, str], calls: dict[str, int], tmp_path: Path
) -> None:
    assert calls[function] > 0, "a training calls it"
    bad, server = [], None
    for number, (first, last, result) in enumerate(faults(function, calls[function])):
        fault = f"{function} {first} to {last} returns {result}"
        # Calls are counted from the start of the process, so that calls that open the device fail
        # too.
        server = Server(environment, tmp_path / f"log-{number}")
        answer = server.ask(function, first, last, result)
        print(f"{fault}: {answer}")
        if answer.word == "bad":
            bad.append(f"{fault}: {answer.text}")
            server.process.kill()
        elif wrong := server.end():
            bad.append(f"{fault}: {wrong}")
    assert not bad, "\n\n".join(bad)
