"""Sparse tensors."""

import numpy as np

from .core import case


@case("SparseToDense")
def to_dense(t):
    def index(values):
        return np.asarray(values).astype(t.numpy("Tindices"))

    default = t.values("T", ())
    yield dict(
        sparse_indices=index([[0, 1], [1, 3], [2, 0]]),
        output_shape=index([3, 4]),
        sparse_values=t.values("T", (3,)),
        default_value=default,
    )
    yield dict(
        sparse_indices=index([2, 5]), output_shape=index([7]), sparse_values=t.values("T", ()), default_value=default
    )
    yield dict(
        sparse_indices=index(np.zeros((0, 2))),
        output_shape=index([2, 3]),
        sparse_values=t.values("T", (0,)),
        default_value=default,
    )


@case("SparseTensorDenseMatMul", tol={"float16": (1e-2, 1e-2)}, cpu_as={"float16": "float32"})
def products(t):
    at = np.array([[0, 1], [3, 4], [0, 2], [3, 1], [0, 1]], t.numpy("Tindices"))
    for adjoint_a, adjoint_b in [(False, False), (True, False), (False, True)]:
        inner = 6 if adjoint_a else 5
        yield dict(
            a_indices=at,
            a_values=t.normal("T", (5,)),
            a_shape=np.array([6, 5], "int64"),
            b=t.normal("T", (3, inner) if adjoint_b else (inner, 3)),
            adjoint_a=adjoint_a,
            adjoint_b=adjoint_b,
        )
