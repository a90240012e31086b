"""Zeros of both signs, infinities, NaN and extreme numbers through every scalar op of floats, eager
and fused, against TensorFlow's CPU kernels.

The comparison is of the kind of a result: NaN, an infinity with its sign, a zero with its sign, or
another number. `test_sweep.py` and the tests in Rust check the precision of numbers.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU
from sweep.core import CASES
from tensorflow.python.framework import kernels, op_def_registry
from tensorflow_wgpu._library import device_type

DTYPES = ("float16", "bfloat16", "float32", "float64")

#: Ops that compute no number from numbers of their type.
NO_FUNCTIONS = {"AddN", "Bitcast", "Cast", "Select", "SelectV2"}

OPS = sorted(
    op
    for op, case in CASES.items()
    if case.build.__module__ in ("sweep.scalar", "sweep.special") and op not in NO_FUNCTIONS
)

#: Functions for which TensorFlow's kernels lose all digits for extreme arguments, and those that
#: overflow on the way in a 16-bit type: finite arguments stay between 1/2 and 100.
MODERATE = {
    "Betainc",
    "Igamma",
    "IgammaGradA",
    "Igammac",
    "Polygamma",
    "RandomGammaGrad",
    "Zeta",
    *(op for op in OPS if op.endswith("Grad")),
}


def is_zero(x: np.ndarray) -> np.ndarray:
    return x == 0


#: The intended differences: for each op a function of the type and the arguments.
ON_PURPOSE: dict[str, Callable[..., np.ndarray]] = {
    # Either zero is right, and which one TensorFlow takes depends on the type.
    "Maximum": lambda t, x, y: (x == 0) & (y == 0),
    "Minimum": lambda t, x, y: (x == 0) & (y == 0),
    "Relu": lambda t, x: is_zero(x),
    "Relu6": lambda t, x: is_zero(x),
    # A gradient that is not taken is 0, as in TensorFlow's GPU kernel of float16 and in XLA; the
    # others multiply it by 0, which keeps its sign and makes NaN of infinities.
    "ReluGrad": lambda t, g, x: ~(x > 0),
    "Relu6Grad": lambda t, g, x: ~((x > 0) & (x < 6)),
    # Odd functions keep the sign of zero, as TensorFlow's Erfinv has done since 2.22.
    "BesselI1": lambda t, x: is_zero(x),
    "BesselI1e": lambda t, x: is_zero(x),
    "Dawsn": lambda t, x: is_zero(x) | np.isinf(x),
    "Erfinv": lambda t, x: is_zero(x),
    "FresnelCos": lambda t, x: is_zero(x),
    "FresnelSin": lambda t, x: is_zero(x),
    # TensorFlow takes the smallest normal number for 0.
    **dict.fromkeys(
        ["BesselK0", "BesselK0e", "BesselK1", "BesselK1e"], lambda t, x: abs(x) < 1e-30
    ),
    # -inf at the pole in every type; TensorFlow's kernels have NaN in float32.
    "BesselY1": lambda t, x: x <= 0,
    # NaN for large numbers of float64 from 2.17 to 2.22; the limit is 1.
    "Erf": lambda t, x: abs(x) > 1e100,
    # NaN for the largest number; the limits are infinite.
    "Expint": lambda t, x: x > 1e30,
    "Spence": lambda t, x: x > 1e30,
    # Changes in 2.22 have their own tests below.
    "Betainc": lambda t, a, b, x: is_zero(a),
    "Digamma": lambda t, x: is_zero(x),
    "SeluGrad": lambda t, g, y: np.isnan(y),
    # The sign of what vanishes: TensorFlow's own depends on the series that it takes.
    "IgammaGradA": lambda t, a, x: np.isinf(x),
    "RandomGammaGrad": lambda t, a, x: x >= 100,
    # For infinite orders TensorFlow's sign is that of an even one.
    "Polygamma": lambda t, n, x: np.isinf(n) | ((n >= 100) & (x < 0)),
}


def names(op: str) -> list[str]:
    return [arg.name for arg in op_def_registry.get(op).input_arg]


def types(op: str) -> list[str]:
    """The float types of WGPU's kernels of the op."""
    found = set()
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type == device_type():
            for constraint in kernel.constraint:
                if constraint.name == "T":
                    found |= {tf.as_dtype(t).name for t in constraint.allowed_values.list.type}
    return [t for t in DTYPES if t in found]


def arguments(op: str, dtype: str) -> list[np.ndarray]:
    """A column for each input: all combinations of special values."""
    info = ml_dtypes.finfo(tf.as_dtype(dtype).as_numpy_dtype)
    count = len(names(op))
    finite = [0.5, 1.0, 2.5, 3.0, 10.0, 100.0]
    if op not in MODERATE:
        finite += [1e-3, float(info.smallest_normal), float(info.max) ** 0.5, float(info.max)]
    if count == 1:
        finite += [1000.0]
    if count == 3:
        finite = [0.5, 1.0, 3.0]
    positive = [0.0, *finite, np.inf]
    values = np.array([*positive, *(-v for v in positive), np.nan]).astype(info.dtype)
    return [column.ravel() for column in np.meshgrid(*[values] * count, indexing="ij")]


def agree(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where both are of the same kind. Small numbers may vanish."""
    if got.dtype == bool:
        return got == want
    got, want = got.astype("float64"), want.astype("float64")
    both_nan = np.isnan(got) & np.isnan(want)
    numbers = ~np.isnan(got) & ~np.isnan(want)
    infinite = np.isinf(got) | np.isinf(want)
    zeros = (got == 0) & (want == 0)
    return both_nan | (
        numbers & np.where(infinite, got == want, ~zeros | (np.signbit(got) == np.signbit(want)))
    )


def on_cpu(op: str, columns: list[np.ndarray]) -> np.ndarray:
    """TensorFlow's own results; in float32 if it has no 16-bit kernel. More elements follow the
    columns, so that the columns are computed in whole vectors.
    """
    dtype = columns[0].dtype
    more = [np.concatenate([c, np.repeat(c[:1], 64)]) for c in columns]
    with tf.device(CPU):
        try:
            found = call(op, more)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
            found = call(op, [c.astype("float32") for c in more])
    found = found[: len(columns[0])]
    return found if found.dtype == bool else found.astype(dtype)


def call(op: str, columns: list[np.ndarray]) -> np.ndarray:
    return np.asarray(raw(op, [tf.constant(c) for c in columns]).numpy())


def raw(op: str, tensors: list[tf.Tensor]) -> tf.Tensor:
    return getattr(tf.raw_ops, op)(**dict(zip(names(op), tensors)))


def fused(op: str, columns: list[np.ndarray]) -> np.ndarray:
    """The op and a product with 1 in one fused op."""

    @tf.function
    def function(one: tf.Tensor, *tensors: tf.Tensor) -> tf.Tensor:
        return raw(op, list(tensors)) * one

    with tf.device(WGPU):
        tensors = [tf.constant(c) for c in columns]
        return np.asarray(function(tf.ones((), tensors[0].dtype), *tensors).numpy())


def disagreements(op: str, got: np.ndarray, columns: list[np.ndarray]) -> list[str]:
    """The results of another kind than TensorFlow's. TensorFlow's result may be that of whole
    vectors, of single numbers, or of zeros in place of subnormal numbers.
    """
    dtype = columns[0].dtype
    want = on_cpu(op, columns)
    wide = [c.astype("float64") for c in columns]
    purpose = ON_PURPOSE.get(op)
    skipped = np.zeros(len(want), bool) if purpose is None else purpose(dtype, *wide)
    wrong = []
    least = float(ml_dtypes.finfo(dtype).smallest_normal)
    for i in np.flatnonzero(~agree(got, want) & ~skipped):
        alone = [c[i : i + 1] for c in columns]
        flushed = [np.where(abs(c.astype("float64")) < least, c * 0, c) for c in alone]
        if any(agree(got[i : i + 1], call_one(op, c))[0] for c in (alone, flushed)):
            continue
        wrong.append(f"{[str(c[0]) for c in alone]}: {got[i]}, not {want[i]}")
    return wrong


def call_one(op: str, columns: list[np.ndarray]) -> np.ndarray:
    dtype = columns[0].dtype
    with tf.device(CPU):
        try:
            return call(op, columns)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
            found = call(op, [c.astype("float32") for c in columns])
            return found if found.dtype == bool else found.astype(dtype)


@pytest.mark.parametrize("op", OPS)
def test_special_values(op: str) -> None:
    for dtype in types(op):
        columns = arguments(op, dtype)
        with tf.device(WGPU):
            got = call(op, columns)
        wrong = disagreements(op, got, columns)
        assert not wrong, f"{op} of {dtype}, {len(wrong)} of {len(got)}: {wrong[:8]}"
        if dtype == "float32" and got.dtype != bool:
            wrong = disagreements(op, fused(op, columns), columns)
            assert not wrong, f"{op} fused, {len(wrong)} of {len(got)}: {wrong[:8]}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_subnormal_numbers(dtype: str) -> None:
    """They may count as 0 or as themselves, on either side, but give no NaN if their neighbours
    give none.
    """
    info = np.finfo(dtype)
    sub, least = info.smallest_subnormal, info.smallest_normal
    for op in OPS:
        if len(names(op)) > 1 or dtype not in types(op):
            continue
        for sign in (1, -1):
            values = np.array([sign * sub, sign * least / 2, sign * 0.0, sign * least], dtype)
            with tf.device(WGPU):
                got = call(op, [values])
            assert not np.isnan(got[:2]).any() or np.isnan(got[2:]).any(), f"{op}: {got}"


def test_what_is_compared() -> None:
    kinds = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    table = np.stack([agree(np.full(6, kind), kinds) for kind in kinds])
    expected = np.eye(6, dtype=bool)
    # A number may vanish.
    expected[5, 3:5] = expected[3:5, 5] = True
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_is_new_in_2_22(dtype: str) -> None:
    """The results of TensorFlow 2.22; earlier, Digamma and Betainc gave NaN and SeluGrad a
    number.
    """
    zero, nan = np.array([0.0, -0.0], dtype), np.array([np.nan, np.nan], dtype)
    with tf.device(WGPU):
        assert (call("Digamma", [zero]) == -np.inf).all()
        gradients = np.array([1.0, 0.0], dtype)
        assert np.isnan(call("SeluGrad", [gradients, nan])).all()
        if dtype != "float16":
            b, x = np.array([0.5, 3.0], dtype), np.array([0.0, 0.7], dtype)
            assert (call("Betainc", [zero, b, x]) == 1).all()


def test_gradients_of_roots_at_zero() -> None:
    """Where the incoming gradient is 0, so is the one of a root, although its slope is infinite."""
    x = tf.constant([0.0, 4.0])
    for device in (CPU, WGPU):
        with tf.device(device), tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.where(x > 0, tf.sqrt(x) + tf.math.rsqrt(x) + tf.math.reciprocal(x), 0)
        np.testing.assert_allclose(tape.gradient(y, x), [0, 1 / 4 - 1 / 16 - 1 / 16], rtol=1e-6)
