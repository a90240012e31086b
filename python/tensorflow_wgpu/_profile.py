"""Records the devices' work in a part of a program, without TensorBoard.

`profile` records while its block runs: every dispatch and copy by the GPU's clock with the op that
asked for it, compilations, waits, memory. The result prints a table, draws a roofline and writes a
trace for chrome://tracing or Perfetto.
"""

from __future__ import annotations

import contextlib
import json
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from tensorflow_wgpu import _fallbacks, _library, _notebook, _rates, _roofline
from tensorflow_wgpu._recording import DeviceProfile, Rates, Recording, Row


class Profile:
    """What `profile` records; complete once its block has ended."""

    def __init__(self) -> None:
        #: One entry for each device.
        self.devices: list[DeviceProfile] = []
        #: Ops that ran on the CPU although there is a device: lines, as `fallbacks` has them.
        self.fallbacks: list[str] = []
        self._recording = Recording()
        self._found: list[_fallbacks.Fallback] = []
        self._block = contextlib.ExitStack()

    def __enter__(self) -> Profile:
        import tensorflow as tf

        if not tf.config.list_logical_devices(_library.device_type()):
            raise RuntimeError(
                "TensorFlow sees no WGPU device; `python -m tensorflow_wgpu` says why"
            )
        with contextlib.ExitStack() as stack:
            found = stack.enter_context(_fallbacks.observed())
            stack.enter_context(self._recording)
            self._block = stack.pop_all()
        # Set after the watch was entered, which fills the list when it ends.
        self._found = found
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self._block.__exit__(kind, error, trace)
        self.fallbacks = [str(fallback) for fallback in self._found if fallback.floating]
        self.devices = self._recording.devices

    def table(self, limit: int = 20, file: TextIO | None = None, rates: bool = True) -> None:
        """Prints what took how long, the longest first: with rich in a terminal if it is installed,
        as plain text elsewhere. `rates` measures the adapter first, once in a process, to tell
        which share of its memory's and arithmetic's rates each row reaches.
        """
        file = file or sys.stdout
        for device in self.devices:
            measured = _rates.of(device.device) if rates else None
            rows = [_cells(row, device, measured) for row in device.rows[:limit]]
            notes = _notes(device, measured, self.fallbacks, limit)
            title = f"{device.device}, {device.adapter}"
            if not _rich_table(title, rows, notes, file):
                print(_plain_table(title, rows, notes), file=file)

    def __str__(self) -> str:
        """The table without rates."""
        parts = []
        for device in self.devices:
            rows = [_cells(row, device, None) for row in device.rows[:20]]
            title = f"{device.device}, {device.adapter}"
            parts.append(_plain_table(title, rows, _notes(device, None, self.fallbacks, 20)))
        return "\n".join(parts) or "nothing is recorded yet"

    def chrome_trace(self, path: str | Path) -> None:
        """Writes the events for chrome://tracing or https://ui.perfetto.dev."""
        events: list[dict[str, Any]] = []
        for number, (device, raw) in enumerate(sorted(self._recording.events.items())):
            events += _chrome_events(device, raw, 2 * number + 1)
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))

    def plot(self, path: str | Path | None = None) -> None:
        """Draws a roofline: how much each op computes for a byte, and how fast, below the rates
        that this adapter reached when they were measured. Needs matplotlib. Writes the file
        `path`; without it the notebook that runs this shows the figure.
        """
        _notebook.show(_roofline.draw(self.devices), path)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """The table without rates."""
        parts = []
        for device in self.devices:
            rows = [_cells(row, device, None) for row in device.rows[:20]]
            title = f"{device.device}, {device.adapter}"
            notes = _notes(device, None, self.fallbacks, 20)
            parts.append(_notebook.table(title, HEADINGS, rows, notes))
        return "\n".join(parts) or _notebook.preformatted(str(self))


def profile() -> Profile:
    """Records what the devices do in a `with` block:

        with tensorflow_wgpu.profile() as p:
            model.fit(x, y)
        p.table()

    One profiler at a time: TensorFlow's own, of `tf.profiler.experimental` or the Keras callback,
    counts too. Compilations take part of the first step; run a step before the block to leave them
    out. Raises RuntimeError where TensorFlow sees no WGPU device, or is profiling already.
    """
    return Profile()


HEADINGS = ("op", "count", "ms", "share", "MB", "GB/s", "GFLOP/s", "of peak")


def _cells(row: Row, device: DeviceProfile, rates: Rates | None) -> tuple[str, ...]:
    """A row as text."""
    seconds = row.seconds
    rate = (lambda amount: f"{amount / seconds / 1e9:.1f}") if seconds else (lambda _: "")
    bound = row._bound(rates)
    return (
        row.name,
        str(row.count),
        f"{seconds * 1e3:.3f}" if seconds else "",
        f"{100 * seconds / device.busy:.1f} %" if seconds and device.busy else "",
        f"{row.bytes / 1e6:.2f}",
        rate(row.bytes),
        rate(row.flops) if row.flops else "",
        f"{100 * bound[0]:.0f} % {bound[1]}" if bound else "",
    )


def _notes(
    device: DeviceProfile, rates: Rates | None, fallbacks: Sequence[str], limit: int
) -> list[str]:
    """The facts that the table does not contain."""
    share = f" ({100 * device.busy / device.wall:.0f} %)" if device.wall else ""
    notes = [
        f"GPU busy {device.busy * 1e3:.2f} ms of {device.wall * 1e3:.2f} ms{share}; "
        f"{device.dispatches} dispatches in {device.submissions} submissions; host: "
        f"{device.enqueue * 1e3:.2f} ms in kernels, {device.waits * 1e3:.2f} ms waiting"
    ]
    if len(device.rows) > limit:
        rest = sum(row.seconds for row in device.rows[limit:])
        notes.append(f"{len(device.rows) - limit} more rows take {rest * 1e3:.2f} ms in all")
    if device.pipelines:
        pipelines = "1 pipeline" if device.pipelines == 1 else f"{device.pipelines} pipelines"
        notes.append(
            f"{pipelines} compiled in {device.compile:.2f} s, the sum of all threads: run a step, "
            "or tensorflow_wgpu.warmup, before profiling"
        )
    if rates is not None:
        notes.append(
            f"measured on this adapter: {rates.bandwidth / 1e9:.1f} GB/s, "
            f"{rates.arithmetic / 1e9:.1f} GFLOP/s in float32"
        )
    if device.timestamps == "none":
        notes.append("this adapter has no timestamps: only whole submissions are timed")
    if device.peak_memory is not None:
        notes.append(f"buffers grew to {device.peak_memory / 1e6:.1f} MB")
    if device.tensors:
        size, shape, op, node = device.tensors[0]
        notes.append(f"the largest tensor: {shape}, {size / 1e6:.2f} MB, of {op} ({node})")
    if device.dropped:
        notes.append(f"{device.dropped} events were too many to keep")
    notes += fallbacks
    return notes


def _plain_table(title: str, rows: Iterable[tuple[str, ...]], notes: Iterable[str]) -> str:
    """Columns that are as wide as their widest cell."""
    table = [HEADINGS, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    lines = [title]
    for row in table:
        first = row[0].ljust(widths[0])
        cells = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))
        lines.append("  ".join((first, *cells)).rstrip())
    return "\n".join([*lines, *notes])


def _rich_table(
    title: str, rows: Iterable[tuple[str, ...]], notes: Iterable[str], file: TextIO
) -> bool:
    """Prints with rich, if it is installed and `file` is a terminal. Returns whether it did."""
    if not file.isatty():
        return False
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    # Brackets belong to the shaders' names and are not markup.
    table = Table(title=Text(title))
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "op" else "right")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=file)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)
    return True


def _chrome_events(device: str, raw: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    """A device's events: process `number` is the GPU, the next one the host's threads."""
    origins, names = raw["origins"], raw["names"]
    gpu, host = number, number + 1
    events: list[dict[str, Any]] = [
        _named("process_name", gpu, 0, f"{device} {raw['adapter']}"),
        _named("process_name", host, 0, f"host, for {device}"),
        _named("thread_name", gpu, 0, "dispatches"),
        _named("thread_name", gpu, 1, "copies"),
    ]
    for name, origin, shader, _, begin, end, moved, flops, timed, submission in raw["device"]:
        details: dict[str, Any] = {"bytes": moved, "submission": submission}
        if flops:
            details["flops"] = flops
        if origin >= 0:
            details |= {key: value for key, value in origins[origin].items() if value}
        if shader >= 0:
            details["shader"] = raw["shaders"][shader]
        if not timed:
            details["timed"] = "by its submission"
        track = 1 if names[name].startswith("Memcpy") else 0
        events.append(_complete(names[name], gpu, track, begin, end, details))
    for number_of_thread, thread in enumerate(raw["threads"]):
        events.append(_named("thread_name", host, number_of_thread, thread["name"] or "thread"))
    for kind, thread, begin, end, _, detail in raw["host"]:
        name, details = raw["kinds"][kind], {}
        if name == "op":
            name, details = origins[detail]["op"], {"node": origins[detail]["node"]}
        elif name == "compile":
            name = f"compile {raw['shaders'][detail]}"
        elif name in ("stage", "read back"):
            details = {"bytes": detail}
        events.append(_complete(name, host, thread, begin, end, details))
    for at, used in raw["memory"]:
        counter = {"ph": "C", "name": "memory", "pid": gpu, "ts": at / 1e3}
        events.append(counter | {"args": {"bytes": used}})
    return events


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    """The name of a process or of a thread."""
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _complete(
    name: str, process: int, thread: int, begin: int, end: int, details: dict[str, Any]
) -> dict[str, Any]:
    """An event with its duration."""
    at = {"pid": process, "tid": thread, "ts": begin / 1e3, "dur": (end - begin) / 1e3}
    return {"ph": "X", "name": name, **at, "args": details}
