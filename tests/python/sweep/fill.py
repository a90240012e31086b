"""Tensors made from nothing or from one value."""

import numpy as np
import tensorflow as tf

from .core import case


@case("Fill")
def fill(t):
    index = t.get("index_type", tf.int32).as_numpy_dtype
    for shape in [(3, 5), (0, 2), ()]:
        yield dict(dims=np.array(shape, index), value=t.values("T", ()))


@case("ZerosLike", "OnesLike", "DeepCopy")
def like(t):
    for shape in [(3, 5), (0, 2), ()]:
        x = t.values("T", shape)
        if t.op == "OnesLike" and t["T"] in (tf.uint32, tf.uint64):
            # In graphs TensorFlow folds it to a constant of zeros, on its CPU, too.
            yield t.program(lambda x=x: tf.raw_ops.OnesLike(x=tf.constant(x)))
        else:
            yield dict(x=x)


@case("Range")
def range_(t):
    dtype = t.numpy("Tidx")
    for bounds in [(1, 12, 3), (4, 4, 1), (9, -4, -2)]:
        start, limit, delta = (np.array(v, dtype) for v in bounds)
        yield dict(start=start, limit=limit, delta=delta)


def same_shapes(got, want):
    """The contents of a tensor without initial values do not matter."""
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]


@case("Empty", compare=same_shapes)
def empty(t):
    yield dict(shape=np.array((3, 5), np.int32), dtype=t["dtype"], init=True)
    yield dict(shape=np.array((0, 2), np.int32), dtype=t["dtype"])
