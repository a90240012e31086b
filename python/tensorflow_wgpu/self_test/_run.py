"""Runs cases on a device and on the CPU, and compares the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tensorflow_wgpu.self_test._cases import Case
from tensorflow_wgpu.self_test._values import Values

#: Most characters of an error that are kept.
MOST_OF_ERROR = 1000
#: Parts of TensorFlow's messages about an op without a kernel for the device.
NO_KERNEL = ("Could not satisfy", "No OpKernel was registered", "no kernel", "not find device")


@dataclass
class Result:
    """The outcome of a case in one type."""

    family: str
    case: str
    dtype: str
    seed: int
    #: `passed`, `failed`, or `not offered`: the adapter lacks a type that the ops need.
    status: str = "passed"
    #: The largest error as a share of the tolerance; 1 is the limit, None is beyond numbers.
    worst: float | None = 0.0
    #: The op that has the largest error, or that failed.
    op: str = ""
    #: A description of the error.
    message: str = ""
    #: The arguments' types and shapes.
    arguments: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run(cases: Iterable[Case], device: str, seed: int, lacks: Iterable[str]) -> Iterator[Result]:
    """Runs each case in each of its types. `lacks` names the types that the adapter's shaders
    lack.
    """
    tf.config.set_soft_device_placement(False)
    lacks = list(lacks)
    for case in cases:
        for dtype in case.types:
            yield one(case, dtype, device, seed, lacks)


def one(case: Case, dtype: str, device: str, seed: int, lacks: list[str]) -> Result:
    """Runs a case in one type."""
    result = Result(case.family, case.name, dtype, seed)
    values = Values(seed, dtype)
    try:
        with tf.device(device):
            got = arrays(case.run(values))
    except Exception as error:
        text = f"{type(error).__name__}: {error}"[:MOST_OF_ERROR]
        result.arguments = values.made
        is_missing = bool(lacks) and any(part in text for part in NO_KERNEL)
        result.status, result.worst = ("not offered" if is_missing else "failed"), None
        result.message = f"the adapter lacks {', '.join(lacks)}" if is_missing else text
        return result
    result.arguments = values.made
    # float16 is summed in float32 here, as it is on the device.
    reference = Values(seed, dtype, wide=dtype == "float16" and not case.exact)
    try:
        with tf.device("CPU:0"):
            want = arrays(case.run(reference))
    except Exception as error:
        text = f"TensorFlow's CPU failed: {type(error).__name__}: {error}"[:MOST_OF_ERROR]
        result.status, result.worst, result.message = "failed", None, text
        return result
    for op, g, w in [(name, *pair) for name in want for pair in zip(got[name], want[name])]:
        worst, message = compare(g, w, case, dtype)
        if message and result.status == "passed":
            result.status, result.op, result.worst, result.message = "failed", op, worst, message
        elif result.status == "passed" and worst >= result.worst:
            result.op, result.worst = op, worst
    return result


def arrays(results: dict[str, Any]) -> dict[str, list[np.ndarray]]:
    """The results as lists of arrays, by op."""
    return {
        op: [np.asarray(getattr(t, "numpy", lambda t=t: t)()) for t in tf.nest.flatten(tensors)]
        for op, tensors in results.items()
    }


def compare(got: np.ndarray, want: np.ndarray, case: Case, dtype: str) -> tuple[float | None, str]:
    """The largest error as a share of the tolerance, and a description of the error, if there is
    one.
    """
    if got.shape != want.shape:
        return None, f"shape {list(got.shape)} came, {list(want.shape)} was expected"
    same_type = got.dtype == want.dtype or (got.dtype.name, want.dtype.name) == (dtype, "float32")
    if not same_type:
        return None, f"{got.dtype} came, {want.dtype} was expected"
    if case.exact or got.dtype.name not in case.tolerance:
        off = ~((got == want) | (unequal_to_itself(got) & unequal_to_itself(want)))
        return (None, where(got, want, off, "must be equal")) if off.any() else (0.0, "")
    relative, absolute = case.tolerance[got.dtype.name]
    wide = "complex128" if got.dtype.kind == "c" else "float64"
    g, w = got.astype(wide), want.astype(wide)
    with np.errstate(invalid="ignore", over="ignore"):
        share = np.abs(g - w) / (absolute + relative * np.abs(w))
    share = np.where((g == w) | (np.isnan(g) & np.isnan(w)), 0.0, share)
    share = np.where(np.isnan(share), np.inf, share)
    worst = float(share.max(initial=0.0))
    if worst <= 1:
        return worst, ""
    tolerance = f"tolerance {absolute:g} + {relative:g} of the value"
    return (worst if np.isfinite(worst) else None), where(got, want, share > 1, tolerance, share)


def unequal_to_itself(x: np.ndarray) -> np.ndarray:
    """The positions of NaNs, in any type."""
    return x != x


def where(
    got: np.ndarray, want: np.ndarray, off: np.ndarray, how: str, share: np.ndarray | None = None
) -> str:
    """A description of the wrong values."""
    place = np.unravel_index(int(np.argmax(off if share is None else share)), off.shape)
    index = [int(i) for i in place]
    return (
        f"{int(off.sum())} of {off.size} values are off ({how}); at {index} {got[place]} came, "
        f"{want[place]} was expected"
    )
