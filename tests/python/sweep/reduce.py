"""Reductions over axes, and the places of extremes."""

import numpy as np
import tensorflow as tf

from .core import case

HALF = {"float16": (5e-3, 5e-3), "bfloat16": (4e-2, 4e-2)}


def axes(t, *values):
    return np.asarray(values, t.numpy("Tidx")) if t.get("Tidx") else list(values)


@case(
    "EuclideanNorm",
    "Prod",
    tol=HALF | {"float32": (2e-5, 2e-5)},
    no_gradient=("complex64", "complex128"),
)
def reductions_of_products(t):
    yield from reductions(t)


@case("Max", "Mean", "Min", "Sum", tol=HALF | {"float32": (2e-5, 2e-5)})
def reductions(t):
    if t["Tidx"].name == "uint64":
        # TensorFlow registers the kernel, but the op has no such type: another index type is used
        # in its place.
        t.types["Tidx"] = tf.int64
    small = (
        (lambda shape: t.integers("T", shape, 1, 3))
        if t.op == "Prod"
        else (lambda shape: t.values("T", shape))
    )
    for shape, reduced, keep in [
        ((3, 7), [1], False),
        ((2, 3, 5), [0, -1], True),
        ((4, 3), [0, 1], False),
        ((3, 4), [], False),
        ((), [], False),
        ((2, 0), [0], False),
        *((shape, [1], False) for shape in t.many_rows()),
    ]:
        yield dict(input=small(shape), axis=axes(t, *reduced), keep_dims=keep)
    if not t["T"].is_complex:
        yield dict(input=small((2, 0)), axis=axes(t, 1), keep_dims=True)


@case("All", "Any")
def logic(t):
    for shape, reduced in [((3, 7), [1]), ((2, 3, 5), [0, 2]), ((2, 0), [1]), ((), [])]:
        yield dict(
            input=np.asarray(t.rng.integers(0, 2, shape)).astype(bool),
            axis=axes(t, *reduced),
            keep_dims=False,
        )


@case("L2Loss", tol=HALF)
def l2_loss(t):
    for shape in [(3, 7), (2, 0), ()]:
        yield dict(t=t.values("T", shape))


@case("ArgMax", "ArgMin")
def extremes(t):
    for shape, axis in [
        ((3, 7), 1),
        ((4, 3, 2), 0),
        ((5,), -1),
        ((0, 3), 1),
        *((s, 1) for s in t.many_rows()),
    ]:
        # The generator's integers have ties, for which the first element wins.
        x = (
            t.values("T", shape)
            if t["T"].is_bool
            else t.integers("T", shape, 0 if t["T"].is_unsigned else -3, 4)
        )
        yield dict(
            input=x, dimension=t.integers("Tidx", (), axis, axis + 1), output_type=t["output_type"]
        )
