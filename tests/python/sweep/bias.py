"""Biases along the channels."""

import numpy as np

from .core import case

HALF = {"float16": (5e-3, 5e-3), "bfloat16": (4e-2, 4e-2)}


@case("BiasAdd", "BiasAddV1", tol=HALF)
def bias_add(t):
    for shape in [(3, 7), (2, 3, 4, 5), (0, 3)]:
        yield dict(value=t.values("T", shape), bias=t.values("T", shape[-1:]))
    if t.op == "BiasAdd":
        yield dict(value=t.values("T", (2, 3, 4, 5)), bias=t.values("T", (3,)), data_format="NCHW")


@case("BiasAddGrad", tol={"float16": (1e-2, 1e-2), "bfloat16": (8e-2, 8e-2)})
def bias_add_grad(t):
    for shape in [(3, 7), (2, 3, 4, 5), (0, 3)]:
        yield dict(out_backprop=np.asarray(t.values("T", shape)))
    yield dict(out_backprop=t.values("T", (2, 3, 4, 5)), data_format="NCHW")
