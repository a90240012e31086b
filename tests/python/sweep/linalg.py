"""Dense linear algebra."""

import numpy as np

from .core import case
from .removed import removed_op

#: The precision of float64 for these small matrices.
DOUBLE = {"float64": (1e-9, 1e-10), "complex128": (1e-9, 1e-10)}


def well_conditioned(t, shape):
    """Matrices with a heavy diagonal."""
    return t.normal("T", shape) + (4 * np.eye(shape[-1])).astype(t.numpy("T"))


@case("Cholesky", rtol=1e-3, atol=1e-4, tol=DOUBLE)
def cholesky(t):
    for shape in [(5, 5), (2, 3, 3), (0, 2, 2), (1, 1)]:
        a = t.normal("T", shape)
        product = a @ np.conj(np.swapaxes(a, -1, -2))
        yield dict(input=product + (shape[-1] * np.eye(shape[-1])).astype(t.numpy("T")))


@case("Lu", rtol=1e-3, atol=1e-4, tol=DOUBLE)
def lu(t):
    for shape in [(5, 5), (2, 3, 3), (1, 1)]:
        yield dict(input=t.normal("T", shape), output_idx_type=t["output_idx_type"])


@case(
    "MatrixDeterminant", "MatrixInverse", "LogMatrixDeterminant", rtol=1e-3, atol=1e-4, tol=DOUBLE
)
def square(t):
    for shape in [(5, 5), (2, 3, 3), (0, 2, 2), (1, 1)]:
        yield dict(input=well_conditioned(t, shape))
    if t.op == "MatrixInverse":
        yield dict(input=well_conditioned(t, (2, 4, 4)), adjoint=True)


def wider(dtype):
    """A type in which products are as exact as results in this one."""
    return np.result_type(dtype, np.float32)


def same_product(got, want):
    """Q and R are unique up to signs: compares their product, and the columns of Q up to signs."""
    for (q, r), (wanted_q, wanted_r) in [(got, want)]:
        assert q.shape == wanted_q.shape
        assert r.shape == wanted_r.shape
        rtol, atol = {**DOUBLE, "float16": (1e-2, 1e-2)}.get(q.dtype.name, (1e-3, 1e-4))
        q, r, wanted_q, wanted_r = (x.astype(wider(x.dtype)) for x in (q, r, wanted_q, wanted_r))
        np.testing.assert_allclose(q @ r, wanted_q @ wanted_r, rtol=rtol, atol=atol)
        gram = np.conj(np.swapaxes(q, -1, -2)) @ q
        np.testing.assert_allclose(
            gram, np.broadcast_to(np.eye(q.shape[-1]), gram.shape), atol=atol
        )
        np.testing.assert_allclose(r, np.triu(r), atol=atol)


@case("Qr", compare=same_product, gradient=False)
def qr(t):
    for shape, full in [((5, 3), False), ((2, 4, 4), True), ((3, 5), True)]:
        yield dict(input=t.normal("T", shape), full_matrices=full)


@case("MatrixSolve", rtol=1e-3, atol=1e-4, tol=DOUBLE)
def solve(t):
    for shape, columns, adjoint in [((5, 5), 2, False), ((2, 3, 3), 1, True), ((1, 1), 3, False)]:
        rhs = t.normal("T", (*shape[:-1], columns))
        yield dict(matrix=well_conditioned(t, shape), rhs=rhs, adjoint=adjoint)


TRIANGLES = [((5, 5), 2, True, False), ((2, 3, 3), 1, False, True), ((2, 4, 4), 3, True, True)]


@case("MatrixTriangularSolve", rtol=1e-3, atol=1e-4, tol=DOUBLE)
def triangular_solve(t):
    for shape, columns, lower, adjoint in TRIANGLES:
        rhs = t.normal("T", (*shape[:-1], columns))
        yield dict(matrix=well_conditioned(t, shape), rhs=rhs, lower=lower, adjoint=adjoint)


@case("BatchMatrixTriangularSolve", rtol=1e-3, atol=1e-4, tol=DOUBLE)
def old_triangular_solve(t):
    for shape, columns, lower, adjoint in TRIANGLES:
        inputs = [well_conditioned(t, shape), t.normal("T", (*shape[:-1], columns))]
        yield t.program(
            lambda inputs=inputs, lower=lower, adjoint=adjoint: removed_op(
                t.op, inputs, t.types, producer=12, lower=lower, adjoint=adjoint
            )
        )
