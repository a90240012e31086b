"""Segment reductions."""

from __future__ import annotations

import numpy as np

from .core import case

LOOSE = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}


# The gradient of SegmentProd counts zeros with an int32 SegmentSum, which TensorFlow has only on
# the CPU.
@case("SegmentProd", gradient=False, tol=LOOSE)
@case("SegmentSum", "SegmentMean", "SegmentMin", "SegmentMax", tol=LOOSE)
def segments(t):
    index = t.numpy("Tindices")
    for shape, ids in (
        ((5,), [0, 0, 2, 2, 5]),
        ((4, 3), [1, 1, 2, 2]),
        ((0, 3), []),
        ((3, 0), [0, 1, 1]),
        ((200, 2), np.sort(t.rng.integers(0, 30, 200))),
    ):
        yield dict(data=t.uniform("T", shape, 0.5, 1.5), segment_ids=np.asarray(ids, index))
