"""Segment reductions of rows picked by their indices, and their gradients."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .core import case

LOOSE = {"float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}
FORMS = ("Sum", "Mean", "SqrtN")


def places(t):
    """Rows' shape, indices, ascending ids."""
    rng = t.rng
    for shape, indices, ids in (
        ((5,), [4, 0, 0, 2, 4], [0, 0, 2, 2, 5]),
        ((4, 3), [3, 3, 1], [1, 1, 2]),
        ((3, 2), [], []),
        ((3, 0), [2, 1], [0, 1]),
        ((3, 1, 2), [2], [0]),
        ((50, 3), rng.integers(0, 50, 300), np.sort(rng.integers(0, 40, 300))),
        ((2, 3), rng.integers(0, 2, 200), np.zeros(200)),
    ):
        indices, ids = np.asarray(indices), np.asarray(ids)
        # TensorFlow's CPU leaves the dense gradient uninitialized if there are no indices.
        if not ids.size and not t.op.endswith("V2"):
            continue
        yield shape, indices.astype(t.numpy("Tidx")), ids.astype(t.numpy("Tsegmentids"))


@case(*(f"SparseSegment{form}" for form in FORMS), gradient=True, tol=LOOSE)
def plain(t):
    for shape, indices, ids in places(t):
        yield dict(data=t.uniform("T", shape, 0.5, 1.5), indices=indices, segment_ids=ids)
    form = {"SparseSegmentSum": "sum", "SparseSegmentMean": "mean", "SparseSegmentSqrtN": "sqrt_n"}[
        t.op
    ]
    data = t.uniform("T", (6, 2), 0.5, 1.5)
    indices, ids = (
        np.asarray([5, 1, 1, 0], t.numpy("Tidx")),
        np.asarray([0, 0, 0, 2], t.numpy("Tsegmentids")),
    )

    def user():
        x, at, to = tf.constant(data), tf.constant(indices), tf.constant(ids)
        results = []
        for sparse in (False, True):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = getattr(tf.sparse, f"segment_{form}")(
                    x, at, to, num_segments=4, sparse_gradient=sparse
                )
                loss = tf.reduce_sum(y * y)
            gradient = tape.gradient(loss, x)
            results += [y, *([gradient.values, gradient.indices] if sparse else [gradient])]
        return results

    yield t.program(user, graph=True)


@case(*(f"SparseSegment{form}WithNumSegments" for form in FORMS), gradient=True, tol=LOOSE)
def sized(t):
    for shape, indices, ids in places(t):
        for segments in (np.int32(7), np.int64(41)):
            if not ids.size or ids[-1] < segments:
                yield dict(
                    data=t.uniform("T", shape, 0.5, 1.5),
                    indices=indices,
                    segment_ids=ids,
                    num_segments=segments,
                )


def gradients(t, size):
    for shape, indices, ids in places(t):
        rows = (int(ids[-1]) + 2 if ids.size else 2, *shape[1:])
        yield {
            "grad": t.uniform("T", rows, 0.5, 1.5),
            "indices": indices,
            "segment_ids": ids,
            size: np.int32(shape[0]),
        }


@case(*(f"SparseSegment{form}Grad" for form in FORMS), tol=LOOSE)
def gradient(t):
    yield from gradients(t, "output_dim0")


@case(*(f"SparseSegment{form}GradV2" for form in FORMS), tol=LOOSE)
def compact_gradient(t):
    yield from gradients(t, "dense_output_dim0")
