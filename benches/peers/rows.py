"""What is compared: the same work in the same shapes for every peer. Any Python can import it.

A peer is a program that prints a line of JSON for each row, `{"row": "add", "seconds": 0.01}`, or one with
`"refused"` and the reason for all that it cannot do, or with `"about"` and its version.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

MILLION = 1 << 20


class Row(NamedTuple):
    """A row of the table."""

    #: What peers call it.
    key: str
    #: What the table calls it.
    title: str
    #: Multiplications and additions, or bytes, or calls, of one unit of work.
    work: float
    #: What the work is counted in: GFLOP/s, GB/s, or µs for each call.
    unit: str
    #: The row of benches/kernels that does the same.
    ours: str


ROWS = [
    Row("matmul", "MatMul 1024³", 2.0 * 1024**3, "GFLOP/s", "MatMul float32 1024×1024×1024"),
    Row(
        "conv3", "Conv 3×3, 8×56×56×64→64", 18.0 * 8 * 56 * 56 * 64 * 64, "GFLOP/s", "Conv2D 3×3 8×56×56×64→64 forward"
    ),
    Row(
        "conv1",
        "Conv 1×1, 8×14×14 256→1024",
        2.0 * 8 * 14 * 14 * 256 * 1024,
        "GFLOP/s",
        "Conv2D 1×1 8×14×14×256→1024 forward",
    ),
    Row("add", "Add 16 M", 12.0 * 16 * MILLION, "GB/s", "AddV2 float32 16 M"),
    Row("gelu", "GELU chain 16 M", 8.0 * 16 * MILLION, "GB/s", "_WgpuFusedElementwise GELU 16 M"),
    Row("softmax", "Softmax 4096×1024", 8.0 * 4 * MILLION, "GB/s", "Softmax float32 4096×1024"),
    Row("sum_last", "Sum, last axis, 4096²", 4.0 * 16 * MILLION, "GB/s", "Sum float32 4096×4096 over 1"),
    Row("sum_first", "Sum, first axis, 4096²", 4.0 * 16 * MILLION, "GB/s", "Sum float32 4096×4096 over 0"),
    Row("layer_norm", "Layer norm 4096×1024", 8.0 * 4 * MILLION, "GB/s", "_WgpuFusedRows layer norm float32 4096×1024"),
    Row("small", "1000 small adds", 1000.0, "µs each", "AddV2 float32 64, 1000 times"),
]


def rate(row: Row, seconds: float) -> float:
    """The figure of the table: larger is better, but for µs."""
    return seconds / row.work * 1e6 if row.unit == "µs each" else row.work / seconds / 1e9


def tell(**fields: object) -> None:
    """Prints a line for the program that runs the peers."""
    print(json.dumps(fields), flush=True)


def measure(rows: dict[str, Callable[[], Callable[[int], None]]]) -> None:
    """Times each row. Its maker returns a function that does the work so many times and then waits for the last one.

    What waiting costs, such as a copy of the result, is left out: the time of one is subtracted from that of several.
    """
    for key, make in rows.items():
        try:
            run = make()
            start = time.perf_counter()
            run(1)
            run(1)
            one = (time.perf_counter() - start) / 2
            count = max(2, min(200, int(0.1 / one) + 1))
            times = []
            for _ in range(3 if one < 1 else 1):
                start = time.perf_counter()
                run(1)
                single = time.perf_counter()
                run(count + 1)
                times.append((time.perf_counter() - single - (single - start)) / count)
            tell(row=key, seconds=max(statistics.median(times), 1e-9))
        except Exception as error:  # A peer that lacks one op has the others.
            print(f"{key}: {error}", file=sys.stderr)
            tell(row=key, error=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
