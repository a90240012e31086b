"""Scans."""

import numpy as np

from .core import case


@case(
    "Cumsum",
    "Cumprod",
    "CumulativeLogsumexp",
    tol={"float16": (1e-2, 1e-2), "bfloat16": (8e-2, 8e-2)},
)
def scans(t):
    for shape, axis, flags in [
        ((3, 7), 1, {}),
        ((5,), 0, {"reverse": True, "exclusive": True}),
        ((2, 0), 0, {}),
        ((4, 1), -1, {}),
        *((shape, 1, {}) for shape in t.many_rows()),
    ]:
        x = (
            np.sign(t.values("T", shape))
            if t.op == "Cumprod" and t["T"] != "bool"
            else t.values("T", shape)
        )
        yield dict(x=x.astype(t.numpy("T")), axis=t.integers("Tidx", (), axis, axis + 1), **flags)
