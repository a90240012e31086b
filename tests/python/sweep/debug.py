"""Summaries of a tensor's values."""

import numpy as np

from .core import case


@case("DebugNumericSummaryV2")
def debug_summary(t):
    dtype = np.dtype(t.numpy("T"))
    x = t.values("T", (5, 7))
    if dtype.kind == "f":
        x[0, :4] = [np.inf, -np.inf, np.nan, np.nan]
    for mode in (2, 3, 4, 5, 8):
        for value in (
            x,
            t.values("T", (0, 3)),
            t.values("T", ()),
            t.values("T", (1, 2, 1, 2, 1, 2, 1, 3)),
        ):
            yield dict(
                input=value, output_dtype=t["output_dtype"], tensor_debug_mode=mode, tensor_id=17
            )
