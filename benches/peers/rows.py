"""The rows that are compared: the same work in the same shapes for every peer. Any Python can
import it.

A peer is a program. It first prints a line of JSON with `"about"` and its version, or with
`"refused"` and the reason, after which it ends. Then it reads the key of a row from each line of
standard input and answers with one line: the wall-clock seconds and the seconds of all processors
that a unit of the row's work takes, or the reason why there are none:

    {"row": "add", "seconds": 0.01, "cpu": 0.02}
    {"row": "add", "error": "out of memory"}
    {"row": "add", "absent": true}

A maker's function may have an attribute `told` with further fields of the answer.

Operands are on the device before the clock starts. A unit's result stays there; only the last of
several is waited for. If a row is asked for again, objects from the first time, such as shaders,
are kept.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

MILLION = 1 << 20
#: How long a measurement should last. It includes one wait for the last result, which must be a
#: small part of it.
SECONDS = 0.2
#: Does the work this number of times and waits for the last one.
Run = Callable[[int], None]


class Row(NamedTuple):
    """A row of the table."""

    #: Its name for the peers.
    key: str
    #: Its name in the table.
    title: str
    #: Multiplications and additions, or bytes, or calls, of one unit of work.
    work: float
    #: The unit of the figure: GFLOP/s, GB/s, or µs for each call.
    unit: str
    #: The row of benches/kernels that does the same.
    ours: str
    #: Whether it would take minutes on a software adapter: only others are asked for it.
    large: bool = False


def conv(key: str, title: str, flops: float, ours: str) -> list[Row]:
    """A convolution and its two gradients, which are as much work each."""
    return [
        Row(f"{key}{short}", f"{title}{long}", flops, "GFLOP/s", f"{ours} {what}")
        for short, long, what in (
            ("", "", "forward"),
            ("_x", ", input", "input"),
            ("_w", ", filter", "filter"),
        )
    ]


POOLED = 8 * 112 * 112 * 64
ROWS = [
    Row("matmul", "MatMul 1024³", 2.0 * 1024**3, "GFLOP/s", "MatMul float32 1024×1024×1024"),
    Row(
        "matmul_large",
        "MatMul 4096³",
        2.0 * 4096**3,
        "GFLOP/s",
        "MatMul float32 4096×4096×4096",
        True,
    ),
    Row(
        "matmul_half",
        "MatMul float16 4096³",
        2.0 * 4096**3,
        "GFLOP/s",
        "MatMul float16 4096×4096×4096",
        True,
    ),
    *conv(
        "conv3", "Conv 3×3, 8×56×56×64→64", 18.0 * 8 * 56 * 56 * 64 * 64, "Conv2D 3×3 8×56×56×64→64"
    ),
    *conv(
        "conv1",
        "Conv 1×1, 8×14×14 256→1024",
        2.0 * 8 * 14 * 14 * 256 * 1024,
        "Conv2D 1×1 8×14×14×256→1024",
    ),
    Row("add", "Add 16 M", 12.0 * 16 * MILLION, "GB/s", "AddV2 float32 16 M"),
    Row("gelu", "GELU chain 16 M", 8.0 * 16 * MILLION, "GB/s", "_WgpuFusedElementwise GELU 16 M"),
    Row("softmax", "Softmax 4096×1024", 8.0 * 4 * MILLION, "GB/s", "Softmax float32 4096×1024"),
    Row(
        "sum_last",
        "Sum, last axis, 4096²",
        4.0 * 16 * MILLION,
        "GB/s",
        "Sum float32 4096×4096 over 1",
    ),
    Row(
        "sum_first",
        "Sum, first axis, 4096²",
        4.0 * 16 * MILLION,
        "GB/s",
        "Sum float32 4096×4096 over 0",
    ),
    Row(
        "layer_norm",
        "Layer norm 4096×1024",
        8.0 * 4 * MILLION,
        "GB/s",
        "_WgpuFusedRowwise layer norm float32 4096×1024",
    ),
    Row(
        "transpose",
        "Transpose 4096²",
        8.0 * 16 * MILLION,
        "GB/s",
        "Transpose float32 4096×4096 to [1, 0]",
    ),
    Row(
        "max_pool",
        "Max pool 3×3 by 2, 8×112×112×64",
        4.0 * POOLED * 1.25,
        "GB/s",
        "MaxPool 3×3 8×112×112×64 by 2 forward",
    ),
    Row("small", "1000 small adds", 1000.0, "µs each", "AddV2 float32 64, 1000 times"),
]


def rate(row: Row, seconds: float) -> float:
    """The figure of the table: larger is better, except for µs."""
    return seconds / row.work * 1e6 if row.unit == "µs each" else row.work / seconds / 1e9


def tell(**fields: object) -> None:
    """Prints a line for the program that runs the peers."""
    print(json.dumps(fields), flush=True)


def measure(run: Run) -> dict[str, float]:
    """The seconds of a unit."""
    start = time.perf_counter()
    run(1)
    one = time.perf_counter() - start
    count = max(1, min(1000, round(SECONDS / one)))
    start, cpu = time.perf_counter(), time.process_time()
    run(count)
    return {
        "seconds": (time.perf_counter() - start) / count,
        "cpu": (time.process_time() - cpu) / count,
    }


def difference(results: list[Any], wanted: list[Any]) -> float:
    """The largest difference of arrays, as a share of the largest expected number of each.

    A value that is no number, or an array of another shape, differs by infinity.
    """
    largest = 0.0
    for found, right in zip(results, wanted):
        if found.shape != right.shape:
            return math.inf
        scale = float(abs(right).max()) or 1.0
        by = float(abs(found - right).max()) / scale
        largest = max(largest, by if math.isfinite(by) else math.inf)
    return largest if len(results) == len(wanted) else math.inf


def serve(makers: dict[str, Callable[[], Run]]) -> None:
    """Answers requests until standard input ends."""
    made: dict[str, Run] = {}
    for line in sys.stdin:
        key = line.strip()
        if key not in makers:
            tell(row=key, absent=True)
            continue
        try:
            if key not in made:
                run = makers[key]()
                run(1)
                made[key] = run
            tell(row=key, **measure(made[key]), **getattr(made[key], "told", {}))
        except Exception as error:  # A peer that lacks one op has the others.
            text = str(error).splitlines()
            tell(row=key, error=f"{type(error).__name__}: {text[0] if text else ''}")
