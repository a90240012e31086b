"""A peer as a process: rows.py describes the protocol."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from rows import Row


class Peer:
    """A peer that is asked for its rows one by one."""

    def __init__(
        self, command: list[str], environment: dict[str, str], folder: Path | None, patience: float
    ) -> None:
        """Starts the peer and waits for its first line."""
        self.patience = patience
        #: Its description, or the reason why it does not run.
        self.about: str | None = None
        self.refused: str | None = None
        #: All fields of its first line.
        self.told: dict[str, Any] = {}
        #: The measurements of each row, in seconds of the wall clock and of the processors, and the
        #: errors.
        self.samples: dict[str, list[tuple[float, float]]] = {}
        self.errors: dict[str, str] = {}
        self.absent: set[str] = set()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self.process: subprocess.Popen | None = None
        self.how = {"args": command, "env": environment, "cwd": folder}
        self.start()

    def start(self) -> None:
        """Starts the process and waits for its first line."""
        pipe, self.rest = subprocess.PIPE, b""
        try:
            self.process = subprocess.Popen(**self.how, stdin=pipe, stdout=pipe, stderr=self.log)
        except OSError:
            self.refused = f"{self.how['args'][0]} is not there"
            return
        told = self.line()
        if told is not None:
            self.greet(told)

    def greet(self, told: dict[str, Any]) -> None:
        """Takes the first line."""
        self.about, self.refused, self.told = told.get("about"), told.get("refused"), told

    def name_of(self, row: Row) -> str:
        """The peer's name for a row."""
        return row.key

    def ask(self, row: Row) -> None:
        """Measures a row once more, unless the peer cannot."""
        if self.refused or row.key in self.errors or row.key in self.absent:
            return
        try:
            self.process.stdin.write(f"{self.name_of(row)}\n".encode())
            self.process.stdin.flush()
        except OSError:
            pass  # It has ended; the next line says so.
        told = self.line()
        if told is not None:
            self.take(row, told)
        elif self.refused == self.slow():
            # It was too slow for one row. A new process is asked for the other rows, but not again
            # for rows that have a sample.
            self.errors[row.key], self.refused = self.refused, None
            self.absent |= self.samples.keys()
            self.start()

    def slow(self) -> str:
        """The error of a peer that does not answer in time."""
        return f"no answer in {self.patience:g} s"

    def take(self, row: Row, told: dict[str, Any]) -> None:
        """Keeps an answer."""
        if "seconds" in told:
            self.samples.setdefault(row.key, []).append((told["seconds"], told["cpu"]))
        elif "error" in told:
            self.errors[row.key] = told["error"]
        else:
            self.absent.add(row.key)

    def line(self) -> dict[str, Any] | None:
        """The next line. None if the process has ended, or is too slow, in which case it is
        ended.
        """
        end = time.monotonic() + self.patience
        output = self.process.stdout.fileno()
        while True:
            head, found, rest = self.rest.partition(b"\n")
            if found:
                self.rest = rest
                try:
                    told = json.loads(head)
                except json.JSONDecodeError:
                    continue
                if isinstance(told, dict):
                    return told
                continue
            ready, _, _ = select.select([output], [], [], max(0.0, end - time.monotonic()))
            part = os.read(output, 1 << 16) if ready else b""
            if part:
                self.rest += part
                continue
            self.refused = self.ended() if ready else self.slow()
            self.close()
            return None

    def ended(self) -> str:
        """The reason why it has ended."""
        try:
            code = self.process.wait(10)
        except subprocess.TimeoutExpired:
            return "has closed its output"
        self.log.seek(0)
        last = self.log.read().decode(errors="replace").strip().splitlines()[-1:] or [""]
        return f"ended with {code}: {last[0]}"

    def close(self) -> None:
        """Ends the process."""
        if not self.process or self.process.poll() is not None:
            return
        try:
            self.process.stdin.close()
            # A slow peer does not read its input before it has an answer.
            self.process.wait(0 if self.refused else 2)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Kernels(Peer):
    """Our own rows: `kernels --serve`, which takes the names of its own table."""

    def greet(self, told: dict[str, Any]) -> None:
        """Takes its description, the adapter and the adapter's own rates."""
        slow = "" if told["optimized"] else ", built without optimization"
        adapter = told["adapter"]
        self.about = f"tensorflow-wgpu {told['versions']['tensorflow-wgpu']} on {adapter['name']}, "
        self.about += f"{adapter['driver_info']}{slow}"
        self.told = told

    def name_of(self, row: Row) -> str:
        """The name of the same work."""
        return row.ours

    def take(self, row: Row, told: dict[str, Any]) -> None:
        """Keeps an answer."""
        if "ms" in told:
            told |= {"seconds": told["ms"] / 1e3, "cpu": told["cpu_s"]}
        elif "skipped" not in told:
            told.setdefault("error", "no such row")
        super().take(row, told)
