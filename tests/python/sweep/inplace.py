"""Updates of rows of a tensor, and reversed sequences."""

import numpy as np

from .core import case


@case("InplaceUpdate", "InplaceAdd", "InplaceSub")
def inplace(t):
    def call(shape, rows):
        x, v = t.integers("T", shape, 0, 2), t.integers("T", (len(rows), *shape[1:]), 0, 2)
        return dict(x=x, i=np.asarray(rows, np.int32), v=v)

    yield call((5, 3), [4, 0, 2])
    yield call((4, 3), [1, -1, 6])
    yield call((3, 2, 3), [1, 1])
    yield call((4,), [3, 0])
    yield call((4, 3), [])


@case("ReverseSequence")
def reverse_sequence(t):
    def call(shape, lengths, seq_dim, batch_dim):
        x = t.values("T", shape)
        return dict(
            input=x,
            seq_lengths=np.asarray(lengths, t.numpy("Tlen")),
            seq_dim=seq_dim,
            batch_dim=batch_dim,
        )

    yield call((3, 5), [1, 0, 5], 1, 0)
    yield call((4, 3, 7), [2, 4, 3], 0, 1)
    yield call((2, 3, 5, 3), [3, 1, 0, 2, 3], 1, 2)
    yield call((3, 0), [0, 0, 0], 1, 0)
