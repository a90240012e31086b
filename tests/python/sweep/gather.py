"""Gathers, one-hot vectors and stitches."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .core import case


@case("Gather", "GatherV2")
def gather(t):
    many = [(shape, (70_000,)) for shape in t.many_rows()]
    for dims, index_dims in (((5,), ()), ((5, 3), (4,)), ((4, 3), (2, 3)), ((5, 3), (0,)), *many):
        params, indices = t.values("Tparams", dims), t.integers("Tindices", index_dims, 0, dims[0])
        if t.op == "Gather":
            yield dict(params=params, indices=indices)
        else:
            yield dict(params=params, indices=indices, axis=np.int32(0))
    if t.op == "GatherV2":
        x = t.values("Tparams", (2, 5, 3))
        yield dict(
            params=x, indices=t.integers("Tindices", (2, 2), 0, 5), axis=np.int32(1), batch_dims=1
        )
        yield dict(params=x, indices=t.integers("Tindices", (4,), 0, 3), axis=np.int64(-1))


@case("GatherNd")
def gather_nd(t):
    yield dict(params=t.values("Tparams", (4, 3)), indices=t.integers("Tindices", (5, 2), 0, 3))
    yield dict(
        params=t.values("Tparams", (4, 3, 2)), indices=t.integers("Tindices", (2, 3, 1), 0, 4)
    )
    yield dict(params=t.values("Tparams", (4, 3)), indices=t.integers("Tindices", (0, 2), 0, 3))
    yield dict(params=t.values("Tparams", (4,)), indices=t.integers("Tindices", (1,), 0, 4))


@case("ResourceGather", "ResourceGatherNd")
def resource_gather(t):
    def program(initial, indices):
        def fn():
            variable = tf.Variable(initial)
            op = getattr(tf.raw_ops, t.op)
            return op(resource=variable.handle, indices=indices, dtype=t["dtype"])

        return t.program(fn)

    nested = t.op == "ResourceGatherNd"
    yield program(
        t.values("dtype", (5, 3)), t.integers("Tindices", (4, 1) if nested else (4,), 0, 5)
    )
    yield program(
        t.values("dtype", (5,)), t.integers("Tindices", (2, 3, 1) if nested else (2, 3), 0, 5)
    )
    yield program(
        t.values("dtype", (5, 3)), t.integers("Tindices", (0, 1) if nested else (0,), 0, 5)
    )


@case("OneHot")
def one_hot(t):
    for shape, axis, depth in (
        ((5,), -1, 4),
        ((2, 3), 0, 3),
        ((), -1, 3),
        ((0, 2), 1, 2),
        ((3,), -1, 0),
    ):
        yield dict(
            indices=t.integers("TI", shape, 0, 5),
            depth=np.int32(depth),
            on_value=t.values("T", ()),
            off_value=t.values("T", ()),
            axis=axis,
        )


@case("DynamicStitch", "ParallelDynamicStitch")
def stitch(t):
    order = t.rng.permutation(7).astype(np.int32)
    yield dict(
        indices=[order[:3], order[3:].reshape(2, 2)],
        data=[t.values("T", (3, 2)), t.values("T", (2, 2, 2))],
    )
    yield dict(
        indices=[np.int32([1, 0]), np.int32(2)], data=[t.values("T", (2,)), t.values("T", ())]
    )
