"""Softmax and the cross entropies."""

import numpy as np

from .core import case

TOL = {"float32": (2e-5, 1e-6), "float16": (5e-3, 5e-3), "bfloat16": (4e-2, 4e-2)}


@case("LogSoftmax", "Softmax", tol=TOL)
def softmax(t):
    for shape in [(3, 7), (2, 3, 70), (5,), (0, 4), *t.many_rows()]:
        yield dict(logits=t.normal("T", shape))


@case("SoftmaxCrossEntropyWithLogits", tol=TOL)
def dense(t):
    for features, labels in [
        ((3, 7), (3, 7)),
        ((4, 70), (4, 70)),
        ((0, 3), (0, 3)),
        *((s, s) for s in t.many_rows()),
    ]:
        yield dict(features=t.normal("T", features), labels=t.uniform("T", labels, 0, 0.3))


@case("SparseSoftmaxCrossEntropyWithLogits", tol=TOL)
def sparse(t):
    for rows, classes in [(3, 7), (4, 70), (0, 3), *t.many_rows()]:
        labels = (
            t.integers("Tlabels", (rows,), 0, classes) if rows else np.zeros(0, t.numpy("Tlabels"))
        )
        yield dict(features=t.normal("T", (rows, classes)), labels=labels)
