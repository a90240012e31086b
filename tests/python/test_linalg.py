"""tf.linalg on WGPU: against the CPU, with gradients, and with singular and badly shaped input."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import WGPU, assert_close, on_both, run_on

# Beyond a panel of 32 columns and beyond the 64 rows that one dispatch takes.
SHAPES = [(1, 1), (3, 3), (2, 4, 4), (65, 65), (2, 40, 40)]


def matrices(rng, shape):
    """Well conditioned matrices whose largest elements are off the diagonal, so that pivoting
    matters.
    """
    n = shape[-1]
    return (rng.normal(size=shape) + 3 * np.sqrt(n) * np.roll(np.eye(n), 1, axis=1)).astype(
        "float32"
    )


def positive(rng, shape):
    x = rng.normal(size=shape)
    return (x @ np.swapaxes(x, -1, -2) / shape[-1] + np.eye(shape[-1])).astype("float32")


def gradients(fn):
    """The gradient of a weighted sum of `fn`'s results, as a function of all of its arguments."""

    def gradient(*args):
        with tf.GradientTape() as tape:
            for a in args:
                tape.watch(a)
            total = 0.0
            for y in tf.nest.flatten(fn(*args)):
                weights = tf.reshape(tf.cos(tf.cast(tf.range(tf.size(y)), y.dtype)), tf.shape(y))
                total += tf.reduce_sum(y * weights)
        return tape.gradient(total, args)

    return gradient


@pytest.mark.parametrize("shape", SHAPES)
def test_factorizations(rng, shape) -> None:
    a = matrices(rng, shape)
    on_both(tf.linalg.cholesky, positive(rng, shape), rtol=1e-4, atol=1e-5, graph=False)
    on_both(lambda x: tf.linalg.lu(x), a, rtol=1e-4, atol=1e-4, graph=False)
    on_both(
        lambda x: tf.linalg.lu(x, output_idx_type=tf.int64), a, rtol=1e-4, atol=1e-4, graph=True
    )
    on_both(lambda x: tf.linalg.inv(x), a, rtol=1e-4, atol=1e-5, graph=False)
    on_both(lambda x: tf.linalg.inv(x, adjoint=True), a, rtol=1e-4, atol=1e-5, graph=False)
    scaled = a / np.float32(3 * np.sqrt(shape[-1]))
    on_both(tf.linalg.det, scaled, rtol=1e-3, atol=1e-5, graph=False)
    on_both(tf.linalg.slogdet, a, rtol=1e-4, atol=1e-4, graph=False)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("adjoint", [False, True])
def test_solves(rng, shape, adjoint: bool) -> None:
    a, b = matrices(rng, shape), rng.normal(size=(*shape[:-1], 3)).astype("float32")
    on_both(
        lambda a, b: tf.linalg.solve(a, b, adjoint=adjoint), a, b, rtol=1e-4, atol=1e-5, graph=False
    )
    triangle = positive(rng, shape)
    for lower in (False, True):

        def solve(t, b, lower=lower):
            return tf.linalg.triangular_solve(t, b, lower=lower, adjoint=adjoint)

        on_both(solve, triangle, b, rtol=1e-3, atol=1e-4, graph=False)
    on_both(
        tf.linalg.cholesky_solve, np.linalg.cholesky(triangle), b, rtol=1e-3, atol=1e-4, graph=False
    )


def test_triangular_solve_broadcasts(rng) -> None:
    t = positive(rng, (2, 1, 4, 4))
    on_both(tf.linalg.triangular_solve, t, rng.normal(size=(3, 4, 2)).astype("float32"), rtol=1e-4)
    on_both(
        tf.linalg.triangular_solve, t[0, 0], rng.normal(size=(3, 4, 2)).astype("float32"), rtol=1e-4
    )


@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5), (2, 4, 3), (70, 40), (40, 70)])
@pytest.mark.parametrize("full", [False, True])
def test_qr(rng, shape, full: bool) -> None:
    on_both(
        lambda x: tf.linalg.qr(x, full_matrices=full),
        rng.normal(size=shape).astype("float32"),
        rtol=1e-3,
        atol=1e-4,
        graph=False,
    )


@pytest.mark.parametrize("shape", [(3, 3), (2, 40, 40)])
def test_gradients(rng, shape) -> None:
    a, b = matrices(rng, shape), rng.normal(size=(*shape[:-1], 3)).astype("float32")
    p = positive(rng, shape)
    close = {"rtol": 2e-3, "atol": 2e-4, "graph": False}
    on_both(gradients(tf.linalg.cholesky), p, **close)
    on_both(gradients(tf.linalg.solve), a, b, **close)
    on_both(gradients(tf.linalg.inv), a, **close)
    on_both(gradients(tf.linalg.det), a / np.float32(3 * np.sqrt(shape[-1])), **close)
    on_both(gradients(lambda x: tf.linalg.slogdet(x)[1]), a, **close)
    on_both(gradients(lambda t, b: tf.linalg.triangular_solve(t, b, lower=True)), p, b, **close)
    if shape == (3, 3):
        on_both(gradients(tf.linalg.qr), a, **close)


def complex_matrices(rng, shape, dtype="complex64"):
    """Well conditioned complex matrices whose largest elements are off the diagonal."""
    n = shape[-1]
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (x + 3j * np.sqrt(n) * np.roll(np.eye(n), 1, axis=1)).astype(dtype)


def hermitian(rng, shape, dtype="complex64"):
    x = complex_matrices(rng, shape, dtype)
    n = shape[-1]
    return (x @ np.conj(np.swapaxes(x, -1, -2)) / (9 * n) + np.diag(np.arange(n))).astype(dtype)


def real_parts(fn):
    """The gradients of a weighted sum of the parts of `fn`'s complex results."""

    def gradient(*args):
        with tf.GradientTape() as tape:
            for a in args:
                tape.watch(a)
            total = 0.0
            for y in tf.nest.flatten(fn(*args)):
                for part in (tf.math.real(y), tf.math.imag(y)):
                    weights = tf.cos(tf.cast(tf.range(tf.size(part)), part.dtype))
                    weights = tf.reshape(weights, tf.shape(part))
                    total += tf.cast(tf.reduce_sum(part * weights), tf.float32)
        return tape.gradient(total, args)

    return gradient


@pytest.mark.parametrize("shape", [(3, 3), (2, 40, 40)])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_gradients(rng, shape, dtype: str) -> None:
    a, b = complex_matrices(rng, shape, dtype), complex_matrices(rng, shape, dtype)
    h = hermitian(rng, shape, dtype)
    close = {"rtol": 2e-3, "atol": 2e-4, "graph": False}
    on_both(real_parts(tf.linalg.cholesky), h + 5 * np.eye(shape[-1], dtype=dtype), **close)
    on_both(real_parts(tf.linalg.solve), a, b, **close)
    on_both(real_parts(tf.linalg.inv), a, **close)
    scaled = (a / (3 * np.sqrt(shape[-1]))).astype(dtype)
    on_both(real_parts(tf.linalg.det), scaled, **close)
    on_both(real_parts(lambda x: tf.linalg.slogdet(x)[1]), a, **close)
    for lower, adjoint in [(True, False), (False, True)]:

        def solve(t, b, lower=lower, adjoint=adjoint):
            return tf.linalg.triangular_solve(t, b, lower=lower, adjoint=adjoint)

        on_both(real_parts(solve), h + 5 * np.eye(shape[-1], dtype=dtype), b, **close)
    on_both(real_parts(tf.linalg.eigvalsh), h, **close)
    if shape == (3, 3):
        on_both(real_parts(tf.linalg.qr), a, **close)


def test_singular_matrices() -> None:
    singular = np.array([[1, 2], [2, 4]], "float32")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input is not invertible"):
        run_on(WGPU, tf.linalg.inv, singular)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input is not invertible"):
        run_on(WGPU, tf.linalg.lu, singular)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Input matrix is not invertible"):
        run_on(WGPU, tf.linalg.solve, singular, singular)
    on_both(tf.linalg.det, singular)
    on_both(tf.linalg.slogdet, singular)
    (failed,) = run_on(WGPU, tf.linalg.cholesky, -singular)
    assert np.isnan(failed[np.tril_indices(2)]).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be square"):
        run_on(WGPU, lambda x: tf.raw_ops.Cholesky(input=x), np.ones((2, 3), "float32"))


@pytest.mark.parametrize(
    "fn", [tf.linalg.det, tf.linalg.inv, tf.linalg.cholesky, tf.linalg.slogdet, tf.linalg.qr]
)
def test_empty(fn) -> None:
    on_both(fn, np.zeros((0, 0), "float32"), graph=False)
    on_both(fn, np.zeros((0, 3, 3), "float32"), graph=False)


def test_orthogonal_initializer() -> None:
    with tf.device(WGPU):
        kernel = keras.initializers.Orthogonal(seed=1)((6, 4), dtype="float32")
    with tf.device("CPU:0"):
        want = keras.initializers.Orthogonal(seed=1)((6, 4), dtype="float32")
    assert_close(np.asarray(kernel), np.asarray(want), rtol=1e-4, atol=1e-5)
