"""Updates of rows of a tensor, reversed sequences, and sums of tiles."""

import numpy as np

from .core import case
from .removed import removed_op


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
        return dict(input=x, seq_lengths=np.asarray(lengths, t.numpy("Tlen")), seq_dim=seq_dim, batch_dim=batch_dim)

    yield call((3, 5), [1, 0, 5], 1, 0)
    yield call((4, 3, 7), [2, 4, 3], 0, 1)
    yield call((2, 3, 5, 3), [3, 1, 0, 2, 3], 1, 2)
    yield call((3, 0), [0, 0, 0], 1, 0)


@case("TileGrad", tol={"float16": (1e-2, 1e-2), "bfloat16": (5e-2, 5e-2)})
def tile_grad(t):
    for shape, multiples in (((4, 9), [2, 3]), ((6,), [6]), ((2, 3, 4), [1, 3, 2]), ((3, 5), [1, 1]), ((0, 4), [1, 2])):
        inputs = [t.values("T", shape), np.asarray(multiples, t.numpy("Tmultiples"))]
        types = {"T": t["T"], "Tmultiples": t["Tmultiples"]}
        yield t.program(lambda inputs=inputs, types=types: removed_op("TileGrad", inputs, types))
