"""What the devices did, as the library records it, and sums of it."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorflow_wgpu import _library


@dataclass(frozen=True)
class Rates:
    """An adapter's rates."""

    #: Bytes of memory read and written in a second.
    bandwidth: float
    #: Operations on float32 in a second: a product and a sum are two.
    arithmetic: float


@dataclass
class Row:
    """All dispatches of one op by one kind of shader, or all copies of one direction."""

    #: As in "MatMul [contract ...]", "Fused(Conv2D, AddV2, Relu) [...]", "MemcpyH2D".
    name: str
    #: How many.
    count: int = 0
    #: Seconds of the GPU's time.
    seconds: float = 0.0
    #: Bytes read and written, by the programs' descriptions.
    bytes: int = 0
    #: Operations on floats, by the kernels' descriptions; 0 where they state none.
    flops: int = 0

    def _bound(self, rates: Rates | None) -> tuple[float, str] | None:
        """The share of the adapter's measured rate that it reaches, and whether that is the rate of
        its memory or of its arithmetic; None without rates or time.
        """
        if rates is None or not self.seconds:
            return None
        memory = self.bytes / self.seconds / rates.bandwidth
        arithmetic = self.flops / self.seconds / rates.arithmetic
        return (arithmetic, "arithmetic") if arithmetic > memory else (memory, "memory")


@dataclass
class DeviceProfile:
    """What one device did. Times are seconds."""

    #: TensorFlow's name, such as "WGPU:0".
    device: str
    #: The adapter's name.
    adapter: str
    #: How the GPU was timed: "dispatches", "encoders", "passes", or "none".
    timestamps: str
    #: By how many seconds the GPU's events may be off on the host's clock.
    clock_error: float | None
    #: How long the block took.
    wall: float
    #: Ops by total time, the longest first.
    rows: list[Row] = field(default_factory=list)
    #: GPU time of all dispatches and copies.
    busy: float = 0.0
    #: Host time in kernels, which enqueue.
    enqueue: float = 0.0
    #: Host time in which a caller waited for the device.
    waits: float = 0.0
    #: Compilations.
    pipelines: int = 0
    #: The total time of compilations, of all threads.
    compile: float = 0.0
    #: Submissions to the driver.
    submissions: int = 0
    #: Dispatches, copies within the device included.
    dispatches: int = 0
    #: Most bytes in the device's buffers; None if that did not change.
    peak_memory: int | None = None
    #: The largest tensors that ops made: bytes, types and shape, op, node.
    tensors: list[tuple[int, str, str, str]] = field(default_factory=list)
    #: Events that were too many to keep.
    dropped: int = 0


class Recording:
    """Records in a `with` block. One at a time: TensorFlow's own profiler counts, too."""

    def __init__(self) -> None:
        #: The sums, one entry for each device; complete once the block has ended.
        self.devices: list[DeviceProfile] = []
        #: The events of each device, as src/profiler/record.rs writes them.
        self.events: dict[str, Any] = {}

    def __enter__(self) -> Recording:
        _start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.events = _library.read("tensorflow_wgpu_profile_stop")
        self.devices = [_summary(device, raw) for device, raw in sorted(self.events.items())]


def _start() -> None:
    """Begins a session in the library. Raises RuntimeError with the library's reason if that
    fails.
    """
    library = ctypes.CDLL(str(_library.library_path()))
    library.tensorflow_wgpu_profile_start.restype = ctypes.c_void_p
    library.tensorflow_wgpu_free.argtypes = [ctypes.c_void_p]
    problem = library.tensorflow_wgpu_profile_start()
    if problem:
        text = ctypes.string_at(problem).decode()
        library.tensorflow_wgpu_free(problem)
        raise RuntimeError(text)


def _summary(device: str, raw: Mapping[str, Any]) -> DeviceProfile:
    """The sums of a device's events."""
    found = DeviceProfile(
        device=device,
        adapter=raw["adapter"],
        timestamps=raw["timestamps"],
        clock_error=None if raw["clock_error"] is None else raw["clock_error"] / 1e9,
        wall=raw["duration"] / 1e9,
        dropped=raw["dropped"],
    )
    rows: dict[int, Row] = {}
    submissions: dict[int, float] = {}
    for name, _, shader, _, begin, end, moved, flops, timed, submission in raw["device"]:
        row = rows.setdefault(name, Row(raw["names"][name]))
        seconds = (end - begin) / 1e9
        if not timed:
            # All events of a submission have its bounds, so the time counts once for all of them.
            submissions[submission] = seconds
            seconds = 0.0
        row.count += 1
        row.seconds += seconds
        row.bytes += moved
        row.flops += flops
        found.busy += seconds
        found.dispatches += shader >= 0
    found.busy += sum(submissions.values())
    found.rows = sorted(rows.values(), key=lambda row: (-row.seconds, -row.bytes))
    for kind, _, begin, end, *_ in raw["host"]:
        seconds = (end - begin) / 1e9
        name = raw["kinds"][kind]
        if name == "op":
            found.enqueue += seconds
        elif name == "wait for device":
            found.waits += seconds
        elif name == "compile":
            found.pipelines += 1
            found.compile += seconds
        elif name == "submit":
            found.submissions += 1
    found.peak_memory = max((used for _, used in raw["memory"]), default=None)
    found.tensors = [
        (size, shape, raw["origins"][origin]["op"], raw["origins"][origin]["node"])
        for size, shape, origin in raw["tensors"]
    ]
    return found
