"""Reductions and arg-reductions on WGPU against TensorFlow's CPU kernels."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf
from support import WGPU, normal, on_both

FLOATS = ["float32", "float16", "bfloat16"]
AXES = [0, 1, 2, -1, [0, 1], [1, 2], [0, 2], [0, 1, 2], [-1, 0], []]


def values(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    if dtype == "bool":
        return rng.random(shape) < 0.8
    if dtype.startswith("int"):
        return rng.integers(-9, 9, shape).astype(dtype)
    return normal(rng, dtype, *shape)


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("op", ["sum", "mean", "prod", "max", "min", "euclidean_norm"])
def test_float_reductions(op, axis, rng):
    for dtype in FLOATS:
        x = values(rng, dtype, 5, 7, 3)
        # TensorFlow's CPU kernel adds half-precision products without a wider type.
        tolerance = {"float16": 1e-2, "bfloat16": 8e-2}.get(dtype, 1e-5)
        reduce = getattr(tf.math, f"reduce_{op}")
        on_both(partial(reduce, axis=axis), x, rtol=tolerance, atol=tolerance, graph=True)
        on_both(
            partial(reduce, axis=axis, keepdims=True),
            x,
            rtol=tolerance,
            atol=tolerance,
            graph=False,
        )


@pytest.mark.parametrize("op", ["sum", "prod", "max"])
def test_int64_reductions(op, rng):
    x = rng.integers(-3, 4, (3, 4, 5)).astype("int64")
    for axis in AXES:
        on_both(partial(getattr(tf.math, f"reduce_{op}"), axis=axis), x)


def test_int32_products(rng):
    # TensorFlow keeps int32 in host memory for all reductions but this one.
    x = rng.integers(-3, 4, (3, 4, 5)).astype("int32")
    for axis in AXES:
        on_both(partial(tf.math.reduce_prod, axis=axis), x)


@pytest.mark.parametrize("op", ["all", "any"])
def test_logic(op, rng):
    x = values(rng, "bool", 6, 4, 5)
    for axis in AXES:
        on_both(partial(getattr(tf.math, f"reduce_{op}"), axis=axis), x)


def test_int64_axes(rng):
    x = values(rng, "float32", 4, 5, 6)
    on_both(lambda t: tf.reduce_sum(t, axis=tf.constant([-1, 0], tf.int64)), x)


def raw(op, axis, t):
    return getattr(tf.raw_ops, op)(input=t, axis=[axis])


def test_empty_reductions():
    x = np.zeros((2, 0), "float32")
    for op in ["Sum", "Mean", "Prod", "Max", "Min", "EuclideanNorm"]:
        for axis in [0, 1]:
            on_both(partial(raw, op, axis), x)


def test_nan_and_infinity(rng):
    x = values(rng, "float32", 4, 300)
    x[0, 17], x[1, 5], x[2, 299] = np.nan, np.inf, -np.inf
    for op in ["reduce_sum", "reduce_max", "reduce_min"]:
        on_both(partial(getattr(tf, op), axis=1), x, rtol=1e-4, atol=1e-4)


def test_l2_loss(rng):
    for dtype in FLOATS:
        x = values(rng, dtype, 11, 13)
        on_both(tf.nn.l2_loss, x, rtol=2e-2 if dtype != "float32" else None)


def test_a_long_sum_is_accurate():
    x = np.full(5_000_000, 0.1, "float32")
    with tf.device(WGPU):
        total = float(tf.reduce_sum(tf.constant(x)))
    assert abs(total - x.astype("float64").sum()) <= 1e-6 * total


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_arg_reductions(op, rng):
    for dtype in ["float32", "float16", "bfloat16"]:
        x = values(rng, dtype, 5, 70, 3)
        for axis in [0, 1, -1]:
            for output in [tf.int32, tf.int64]:
                on_both(partial(getattr(tf.math, op), axis=axis, output_type=output), x)
    ties = np.array([[1, 3, 3, 2], [0, 0, 0, 0]], "float32")
    on_both(lambda t: getattr(tf.math, op)(t, axis=1), ties)


@pytest.mark.parametrize("op", ["sum", "mean", "max", "min", "prod", "euclidean_norm"])
def test_gradients(op, rng):
    x = values(rng, "float32", 4, 5, 6)

    def gradient(t):
        with tf.GradientTape() as tape:
            tape.watch(t)
            y = getattr(tf.math, f"reduce_{op}")(t, axis=[0, 2])
            loss = tf.reduce_sum(tf.square(y))
        return tape.gradient(loss, t)

    on_both(gradient, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        (2, "Invalid reduction dimension"),
        (-3, "Invalid reduction dimension"),
        ([0, 0], "Axes contains duplicate dimension: 0"),
        ([1, -1], "Axes contains duplicate dimension: 1"),
    ],
)
def test_wrong_axes(axis, message):
    with tf.device(WGPU), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.raw_ops.Sum(input=tf.ones([2, 3]), axis=tf.constant(axis))


def test_wrong_arg_axes():
    with (
        tf.device(WGPU),
        pytest.raises(tf.errors.InvalidArgumentError, match="Expected dimension in the range"),
    ):
        tf.argmax(tf.ones([2, 3]), axis=2)
    with tf.device(WGPU), pytest.raises(tf.errors.InvalidArgumentError, match="is empty in shape"):
        tf.argmax(tf.ones([2, 0]), axis=1)
