"""Scatters into tensors and variables, and reductions by unsorted segment ids."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from . import reference
from .core import case

LOOSE = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}


def updates(t, attr, shape):
    """Factors and divisors near 1; any values for the other ops."""
    if t.op.endswith(("Mul", "Div")):
        return t.integers(attr, shape, 1, 3)
    return t.values(attr, shape)


def rows(t, count, n):
    """Row numbers. For updates each occurs only once, because it is undefined which of two wins."""
    if t.op.endswith("Update"):
        return t.rng.permutation(n)[:count]
    return t.rng.integers(0, n, count)


@case(
    "TensorScatterUpdate",
    "TensorScatterAdd",
    "TensorScatterSub",
    "TensorScatterMin",
    "TensorScatterMax",
    "ScatterNdNonAliasingAdd",
    tol=LOOSE,
)
def tensor_scatter(t):
    name = "input" if t.op == "ScatterNdNonAliasingAdd" else "tensor"
    for dims, count, depth in (((6,), 4, 1), ((5, 3), 4, 1), ((3, 2), 3, 2), ((4, 3), 0, 1)):
        flat = rows(t, count, int(np.prod(dims[:depth])))
        indices = np.stack(np.unravel_index(flat, dims[:depth]), axis=-1).astype(
            t.numpy("Tindices")
        )
        yield {
            name: t.values("T", dims),
            "indices": indices,
            "updates": updates(t, "T", (count, *dims[depth:])),
        }


@case("ScatterNd", tol=LOOSE)
def scatter_nd(t):
    for dims, count in (((6,), 4), ((5, 3), 7), ((4, 3), 0)):
        yield dict(
            indices=t.integers("Tindices", (count, 1), 0, dims[0]),
            updates=t.values("T", (count, *dims[1:])),
            shape=np.asarray(dims, t.numpy("Tindices")),
        )


def changed(t, name, initial, indices, update):
    """A program that changes a variable by the op and reads it."""

    op = getattr(tf.raw_ops, t.op)

    def fn():
        if not t.op.startswith("Resource"):
            return reference.changed(
                {"ref": initial}, lambda v: op(**v, indices=indices, updates=update)
            )
        variable = tf.Variable(initial)
        op(**{name: variable.handle, "indices": indices, "updates": update})
        return variable.read_value()

    return t.program(fn)


@case(
    "ResourceScatterUpdate",
    "ResourceScatterAdd",
    "ResourceScatterSub",
    "ResourceScatterMul",
    "ResourceScatterDiv",
    "ResourceScatterMin",
    "ResourceScatterMax",
    "ScatterUpdate",
    "ScatterAdd",
    "ScatterSub",
    "ScatterMul",
    "ScatterDiv",
    "ScatterMin",
    "ScatterMax",
    tol=LOOSE,
)
def variable_scatter(t):
    attr = "dtype" if t.op.startswith("Resource") else "T"
    for dims, count in (((6,), 4), ((5, 3), 4), ((4, 3), 0)):
        indices = rows(t, count, dims[0]).astype(t.numpy("Tindices"))
        yield changed(
            t, "resource", t.values(attr, dims), indices, updates(t, attr, (count, *dims[1:]))
        )
    indices = rows(t, 3, 5).astype(t.numpy("Tindices"))
    yield changed(t, "resource", t.values(attr, (5, 3)), indices, updates(t, attr, ()))


@case(
    "ResourceScatterNdUpdate",
    "ResourceScatterNdAdd",
    "ResourceScatterNdSub",
    "ResourceScatterNdMin",
    "ResourceScatterNdMax",
    "ScatterNdUpdate",
    "ScatterNdAdd",
    "ScatterNdSub",
    "ScatterNdMin",
    "ScatterNdMax",
    tol=LOOSE,
)
def variable_scatter_nd(t):
    for dims, count in (((6,), 4), ((5, 3), 4), ((4, 3), 0)):
        indices = rows(t, count, dims[0]).astype(t.numpy("Tindices"))[:, None]
        yield changed(t, "ref", t.values("T", dims), indices, updates(t, "T", (count, *dims[1:])))


@case(
    "UnsortedSegmentSum",
    "UnsortedSegmentProd",
    "UnsortedSegmentMin",
    "UnsortedSegmentMax",
    tol=LOOSE,
)
def unsorted_segments(t):
    for dims, ids, segments in (
        ((6,), (6,), 4),
        ((5, 3), (5,), 7),
        ((2, 3, 2), (2, 3), 3),
        ((0, 2), (0,), 3),
    ):
        yield dict(
            data=t.values("T", dims),
            segment_ids=t.integers("Tindices", ids, -1, segments),
            num_segments=np.int32(segments),
        )
