"""Ops that sort, select, count and search."""

from __future__ import annotations

import numpy as np

from .core import case


def distinct(t, attr, shape):
    """Values with few ties in wide types and many in narrow ones."""
    x = t.values(attr, shape)
    return x if x.dtype.kind not in "iu" else t.integers(attr, shape, 0, 120)


@case("Where")
def where(t):
    for shape in ((7,), (3, 5), (2, 3, 4), (0, 4), (1500,)):
        x = t.values("T", shape)
        yield dict(condition=np.where(t.rng.uniform(size=shape) < 0.5, x, np.zeros_like(x)))


@case("TopKV2")
def top_k(t):
    for shape, k in (((5,), 2), ((3, 7), 7), ((2, 1, 1100), 4), ((2, 1100), 300), ((0, 3), 2), ((3, 4), 0)):
        yield dict(input=distinct(t, "T", shape), k=np.int32(k))
    yield dict(input=distinct(t, "T", (3, 7)), k=np.int64(3), sorted=True)


@case("ApproxTopK")
def approx_top_k(t):
    for shape, k in (((5,), 2), ((3, 700), 7), ((0, 3), 2)):
        yield dict(input=distinct(t, "T", shape), k=k)


@case("TopK")
def top_k_attribute(t):
    import tensorflow as tf

    x = distinct(t, "T", (3, 7))

    def fn():
        # TensorFlow's CPU kernel of TopK cannot be found by any node: TopKV2 is the reference.
        if "CPU" in tf.constant(0.0).device:
            return tf.raw_ops.TopKV2(input=x, k=3)
        return tf.raw_ops.TopK(input=x, k=3)

    yield t.program(fn)


@case("Unique", "UniqueWithCounts")
def unique(t):
    for n in (0, 1, 9, 700):
        yield dict(x=t.integers("T", (n,), 0, 40), out_idx=t["out_idx"])


@case("DynamicPartition")
def dynamic_partition(t):
    for shape, rank, n in (((6,), 1, 3), ((2, 3, 2), 2, 2), ((0, 2), 1, 2), ((), 0, 3), ((500, 3), 1, 20)):
        partitions = t.rng.integers(0, n, shape[:rank]).astype(np.int32)
        yield dict(data=t.values("T", shape), partitions=partitions, num_partitions=n)
