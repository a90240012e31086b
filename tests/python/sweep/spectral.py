"""Eigenvalues, singular values, tridiagonal systems. Vectors have no unique sign: their products
are compared.
"""

import numpy as np
import tensorflow as tf

from .core import case
from .removed import removed_op


def signs_apart(got, want):
    """Values are equal, and so are vectors up to a sign, or a phase, for each column."""
    for g, w in zip(got, want):
        assert g.shape == w.shape
        assert g.dtype == w.dtype
        tolerance = 1e-4 if w.dtype in (np.float32, np.complex64) else 1e-11
        np.testing.assert_allclose(np.abs(g), np.abs(w), rtol=tolerance, atol=tolerance)


def symmetric(t, shape):
    x = t.normal("T", shape)
    return x + np.conj(np.swapaxes(x, -1, -2)) + np.diag(4 * np.arange(shape[-1])).astype(x.dtype)


@case("SelfAdjointEigV2", gradient=False, compare=signs_apart)
def eigen(t):
    yield dict(input=symmetric(t, (2, 5, 5)))
    yield dict(input=symmetric(t, (20, 20)))
    yield dict(input=symmetric(t, (3, 0, 0)))
    x = symmetric(t, (2, 4, 4))

    def gradient():
        with tf.GradientTape() as tape:
            a = tf.constant(x)
            tape.watch(a)
            y = tf.reduce_sum(tf.linalg.eigvalsh(a) ** 3)
        return tape.gradient(y, a)

    yield t.program(gradient)

    def gradient_of_vectors():
        # Sizes of elements, which do not depend on the vectors' phases.
        with tf.GradientTape() as tape:
            a = tf.constant(x)
            tape.watch(a)
            weights = tf.constant(np.arange(16, dtype="float32").reshape(4, 4))
            y = tf.abs(tf.linalg.eigh(a)[1])
            y = tf.reduce_sum(y**2 * tf.cast(weights, y.dtype))
        return tape.gradient(y, a)

    yield t.program(gradient_of_vectors)


@case("BatchSvd", gradient=False, compare=signs_apart)
def removed_singular(t):
    x = t.normal("T", (2, 3, 5))
    yield t.program(lambda: removed_op("BatchSvd", [x], t.types, producer=12))


@case("Svd", gradient=False, compare=signs_apart)
def singular(t):
    yield dict(input=t.normal("T", (2, 3, 5)))
    yield dict(input=t.normal("T", (7, 2)))
    yield dict(input=t.normal("T", (2, 0, 3)), full_matrices=True)
    x = t.normal("T", (4, 3))

    def gradient():
        with tf.GradientTape() as tape:
            a = tf.constant(x)
            tape.watch(a)
            s, u, v = tf.linalg.svd(a)
            y = tf.reduce_sum(s**2) + tf.reduce_sum(tf.matmul(u, v, transpose_b=True) ** 3)
        return tape.gradient(y, a)

    yield t.program(gradient)


@case("TridiagonalSolve", rtol=1e-4, atol=1e-4)
def tridiagonal_solve(t):
    for batch, n, cols in [((2,), 6, 3), ((), 1, 1), ((2,), 4, 0)]:
        diagonals = t.normal("T", (*batch, 3, n))
        diagonals[..., 1, :] += 4
        yield dict(diagonals=diagonals, rhs=t.normal("T", (*batch, n, cols)))


@case("TridiagonalMatMul")
def tridiagonal_multiply(t):
    for batch, n, cols in [((2,), 6, 3), ((), 1, 1), ((2,), 4, 0)]:
        row = (*batch, 1, n)
        yield dict(
            superdiag=t.normal("T", row),
            maindiag=t.normal("T", row),
            subdiag=t.normal("T", row),
            rhs=t.normal("T", (*batch, n, cols)),
        )
