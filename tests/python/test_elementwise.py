"""Elementwise ops: values, broadcasting, gradients and errors, with TensorFlow's CPU kernels as the
reference.
"""

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, on_both, run_on

raw = tf.raw_ops

FLOATS = ["float32", "float16", "bfloat16"]
SIGNED = ["int8", "int16", "int64"]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64"]
SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    3.5,
    -2.5,
    7.0,
    1e-4,
    100.0,
    np.inf,
    -np.inf,
    np.nan,
]

UNARY = {
    "x": (
        "Abs Neg Sign Square Sqrt Rsqrt Reciprocal Inv Exp Expm1 Log Log1p Sin Cos Tan Asin Acos "
        "Atan Sinh Cosh Tanh "
        "Asinh Acosh Atanh Sigmoid Floor Ceil Round Erf Erfc IsNan IsInf IsFinite"
    ),
    "features": "Relu Relu6 Elu Selu Softplus Softsign LeakyRelu",
}
UNARY_F32 = ["Erfinv", "Ndtri", "Lgamma", "Digamma", "Rint"]
BINARY = [
    "AddV2",
    "Sub",
    "Mul",
    "Div",
    "RealDiv",
    "DivNoNan",
    "FloorDiv",
    "FloorMod",
    "Pow",
    "SquaredDifference",
    "Maximum",
    "Minimum",
    "MulNoNan",
    "Xdivy",
    "Xlogy",
    "Xlog1py",
    "TruncateDiv",
    "Equal",
    "NotEqual",
    "Less",
    "LessEqual",
    "Greater",
    "GreaterEqual",
]
BINARY_INT = [
    "AddV2",
    "Sub",
    "Mul",
    "Div",
    "FloorDiv",
    "FloorMod",
    "Maximum",
    "Minimum",
    "TruncateDiv",
    "Equal",
    "NotEqual",
    "Less",
    "LessEqual",
    "Greater",
    "GreaterEqual",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "LeftShift",
    "RightShift",
]
GRADIENTS = {
    "SigmoidGrad": ("y", "dy"), "TanhGrad": ("y", "dy"), "SqrtGrad": ("y", "dy"),
    "RsqrtGrad": ("y", "dy"),
    "InvGrad": ("y", "dy"), "ReciprocalGrad": ("y", "dy"), "ReluGrad": ("gradients", "features"),
    "Relu6Grad": ("gradients", "features"), "EluGrad": ("gradients", "outputs"),
    "SeluGrad": ("gradients", "outputs"),
    "LeakyReluGrad": ("gradients", "features"), "SoftplusGrad": ("gradients", "features"),
    "SoftsignGrad": ("gradients", "features"),
}  # fmt: skip


def floats(rng: np.random.Generator, dtype: str, n: int = 200) -> np.ndarray:
    """Special values and random ones."""
    return np.concatenate([SPECIALS, rng.uniform(-4, 4, n)]).astype(
        tf.as_dtype(dtype).as_numpy_dtype
    )


def ints(rng: np.random.Generator, dtype: str, n: int = 200) -> np.ndarray:
    """Random integers of the whole range and small ones."""
    info = np.iinfo(dtype)
    wide = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    small = rng.integers(max(info.min, -9), 9, n).astype(dtype)
    return np.concatenate([wide, small])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "op"), [(name, op) for name, ops in UNARY.items() for op in ops.split()]
)
def test_unary(name: str, op: str, dtype: str, rng: np.random.Generator) -> None:
    on_both(lambda x: getattr(raw, op)(**{name: x}), floats(rng, dtype), graph=False)


@pytest.mark.parametrize("op", UNARY_F32)
def test_unary_float32(op: str, rng: np.random.Generator) -> None:
    x = floats(rng, "float32")
    if op == "Digamma":
        # At 0 TensorFlow's releases differ: test_special_values.py.
        x = x[x != 0]
    on_both(lambda x: getattr(raw, op)(x=x), x, graph=False)


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign", "Square", "Invert", "PopulationCount"])
def test_unary_signed(op: str, dtype: str, rng: np.random.Generator) -> None:
    on_both(lambda x: getattr(raw, op)(x=x), ints(rng, dtype), graph=False)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str, dtype: str, rng: np.random.Generator) -> None:
    x = floats(rng, dtype, 50)
    on_both(
        lambda x, y: getattr(raw, op)(x=x, y=y),
        x[:, None],
        x[None, ::-1].copy(),
        graph=False,
        rtol=2e-2 if op == "Pow" and dtype != "float32" else None,
    )


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("op", BINARY_INT)
def test_binary_integers(op: str, dtype: str, rng: np.random.Generator) -> None:
    x, y = ints(rng, dtype), ints(rng, dtype)
    on_both(
        lambda x, y: getattr(raw, op)(x=x, y=y),
        x,
        np.where(y == 0, 1, y).astype(dtype),
        graph=False,
    )


def test_integer_division_by_zero_gives_all_ones() -> None:
    with tf.device(WGPU):
        x, zero = tf.constant([7, -7], tf.int64), tf.constant([0, 0], tf.int64)
        assert raw.Div(x=x, y=zero).numpy().tolist() == [-1, -1]
        assert raw.FloorMod(x=x, y=zero).numpy().tolist() == [7, -7]


def test_logic() -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    on_both(tf.logical_and, x, y)
    on_both(tf.logical_or, x, y)
    on_both(tf.math.logical_xor, x, y)
    on_both(tf.logical_not, x)
    on_both(lambda x, y: raw.Equal(x=x, y=y), x, y)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", GRADIENTS)
def test_gradient_ops(op: str, dtype: str, rng: np.random.Generator) -> None:
    names = GRADIENTS[op]
    numpy_type = tf.as_dtype(dtype).as_numpy_dtype
    x, g = rng.uniform(-0.9, 6.5, 99).astype(numpy_type), rng.uniform(0.1, 3, 99).astype(numpy_type)
    pair = (x, g) if names[0] == "y" else (g, x)
    on_both(lambda a, b: getattr(raw, op)(**dict(zip(names, (a, b)))), *pair, graph=False)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((), (3,)),
        ((4, 1), (1, 5)),
        ((2, 3, 1, 5), (4, 1)),
        ((0, 1), (1, 3)),
        ((1,) * 7 + (2,), (2, 1) * 4),
        ((7, 1, 9), (7, 1, 9)),
    ],
)
def test_broadcasting(a: tuple[int, ...], b: tuple[int, ...], rng: np.random.Generator) -> None:
    x, y = rng.normal(size=a).astype("float32"), rng.normal(size=b).astype("float32")
    on_both(lambda x, y: [x + y, x * y, x < y, tf.where(x > y, x, y)], x, y)


@pytest.mark.parametrize("dtype", [*FLOATS, "int64", "int32", "bool", "uint8"])
def test_select(dtype: str, rng: np.random.Generator) -> None:
    numpy_type = tf.as_dtype(dtype).as_numpy_dtype
    t, e = (rng.integers(0, 2, (5, 7)).astype(numpy_type) for _ in range(2))
    full, rows = rng.integers(0, 2, (5, 7)).astype(bool), rng.integers(0, 2, 5).astype(bool)
    on_both(lambda c, t, e: tf.where(c, t, e), full, t, e)
    on_both(lambda c, t, e: tf.where(c, t, e), rows[:, None], t[:1], e[:, :1])
    if dtype != "uint8":
        on_both(lambda c, t, e: raw.Select(condition=c, x=t, y=e), rows, t, e)
        on_both(lambda c, t, e: raw.Select(condition=c, x=t, y=e), np.bool_(True), t, e)


def test_clip_and_add_n(rng: np.random.Generator) -> None:
    x = floats(rng, "float32")
    on_both(lambda x: tf.clip_by_value(x, -1.0, 2.0), x)
    for n in (1, 2, 6, 7, 13):
        on_both(
            lambda *xs: tf.add_n(list(xs)),
            *[rng.normal(size=(3, 5)).astype("float32") for _ in range(n)],
        )


CASTS = [*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]


@pytest.mark.parametrize("dst", CASTS)
@pytest.mark.parametrize("src", CASTS)
def test_cast(src: str, dst: str, rng: np.random.Generator) -> None:
    source, target = tf.as_dtype(src), tf.as_dtype(dst)
    if source.is_floating:
        # Within the target's range: beyond it the CPU's result depends on its instruction.
        low, high = (0, 2) if target.is_bool else (0, 120) if target.is_unsigned else (-120, 120)
        x = rng.uniform(low, high, 200).astype(source.as_numpy_dtype)
    elif source.is_bool:
        x = rng.integers(0, 2, 33).astype(bool)
    else:
        x = ints(rng, src)
    on_both(lambda x: tf.cast(x, dst), x, graph=False)


def test_cast_saturates() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e20], "float32")
    assert run_on(WGPU, lambda x: tf.cast(x, tf.int32), x)[0].tolist() == [
        0,
        2**31 - 1,
        -(2**31),
        2**31 - 1,
        -(2**31),
        2**31 - 1,
    ]
    assert run_on(WGPU, lambda x: tf.cast(x, tf.uint8), np.array([-1.0, 300.0], "float32"))[
        0
    ].tolist() == [0, 44]


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("float32", "uint32"),
        ("float32", "uint8"),
        ("uint8", "float32"),
        ("int64", "float32"),
        ("float16", "int16"),
    ],
)
def test_bitcast(src: str, dst: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, (3, 4)).astype(src)
    on_both(lambda x: tf.bitcast(x, tf.as_dtype(dst)), x)


#: Zeros and numbers of both signs, subnormal numbers of float32, infinities and NaN.
BITS = np.array([0.0, -0.0, 1.5, -2.5, 1e-40, -1e-40, np.inf, -np.inf, np.nan, -np.nan], "float32")


@pytest.mark.parametrize("dtype", ["float32", "float64", *FLOATS[1:]])
def test_fused_bits(dtype: str) -> None:
    """Bits that are read within a fused function are those that the device would store."""
    wide = tf.float64 if dtype == "float64" else tf.float32
    bits = tf.uint64 if dtype == "float64" else tf.uint32

    def function(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        x = tf.cast(x * y, wide)
        sign = tf.bitwise.right_shift(tf.bitcast(x, bits), tf.constant(8 * bits.size - 1, bits))
        flipped = tf.bitwise.bitwise_xor(tf.bitcast(x, bits), tf.constant(1, bits))
        flipped = tf.bitcast(flipped, wide)
        return sign, flipped, tf.bitcast(-x, bits)

    x = BITS.astype(tf.as_dtype(dtype).as_numpy_dtype)
    for y in (np.ones_like(x), np.linspace(1, 2, x.size).astype(x.dtype)):
        eager, fused = (run_on(WGPU, f, x, y) for f in (function, tf.function(function)))
        # TensorFlow's CPU kernels take subnormal numbers for zeros.
        normal = np.isfinite(x) & (abs(x.astype("float64")) != abs(x[4].astype("float64")))
        for want, got, there in zip(run_on(CPU, function, x, y), fused, eager, strict=True):
            np.testing.assert_array_equal(got[np.isfinite(x)], there[np.isfinite(x)])
            np.testing.assert_array_equal(got[normal], want[normal])


@pytest.mark.parametrize("dtype", FLOATS)
def test_argmax_of_keras_reads_its_input_once(dtype: str) -> None:
    """Keras tells zeros of both signs apart by their bits: one node compares the changed values."""
    x = np.tile(BITS[:4], (3, 1)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    x[1, 2], x[2, 2:] = -1.0, (-3.0, 0.0)
    function = tf.function(lambda x: keras.ops.argmax(x, axis=-1))
    with tf.device(WGPU):
        got, nodes = graphs.optimized(function, tf.constant(x))
    assert graphs.ops(nodes)["_WgpuFusedArg"] == 1
    separate = {"ArgMax", "Bitcast", "BitwiseAnd", "Equal", "Less", "SelectV2"}
    assert not separate & {node.op for node in nodes}
    np.testing.assert_array_equal(got, [2, 0, 0])
    np.testing.assert_array_equal(got, run_on(CPU, function, x)[0])


@pytest.mark.parametrize(
    "fn",
    [tf.exp, tf.tanh, tf.sigmoid, tf.nn.softplus, tf.nn.gelu, tf.nn.silu, tf.nn.elu, tf.nn.selu,
     tf.nn.leaky_relu, tf.nn.relu6,
     tf.math.log1p, tf.math.expm1, tf.sin, tf.cos, tf.tan, tf.atan, tf.asinh, tf.math.erf,
     tf.square, tf.abs,
     lambda x: tf.sqrt(x * x + 1.0), lambda x: tf.math.rsqrt(x * x + 1.0),
     lambda x: 1.0 / (x * x + 1.0),
     lambda x: tf.pow(x * x + 0.5, 1.5), lambda x: tf.maximum(x, 0.3 * x),
     lambda x: tf.where(x > 0.0, x, tf.exp(x)),
     lambda x: tf.clip_by_value(x, -1.0, 1.0), lambda x: tf.math.lgamma(x * x + 1.0)],
)  # fmt: skip
def test_gradients(fn, rng: np.random.Generator) -> None:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = fn(x)
        return tape.gradient(y, x, output_gradients=tf.ones_like(y))

    on_both(gradient, rng.normal(size=(6, 7)).astype("float32"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: raw.AddV2(x=[[1.0, 2.0, 3.0]], y=[1.0, 2.0]),
            r"Incompatible shapes: \[1,3\] vs\. \[2\]",
        ),
        (
            lambda: raw.Equal(x=[1.0, 2.0, 3.0], y=[1.0, 2.0]),
            r"Incompatible shapes: \[3\] vs\. \[2\]",
        ),
        (
            lambda: raw.ReluGrad(gradients=[1.0, 2.0], features=[1.0]),
            r"same size and shape.*\[2\] != input 1: \[1\]",
        ),
        (
            lambda: raw.SelectV2(condition=[True, False], t=[[1.0, 2.0, 3.0]], e=[[2.0]]),
            r"condition \[2\], then \[1,3\], and else \[1,1\]",
        ),
        (
            lambda: raw.ClipByValue(
                t=[1.0, 2.0], clip_value_min=[1.0, 2.0, 3.0], clip_value_max=1.0
            ),
            r"clip_value_min shape: \[3\]",
        ),
        (lambda: raw.AddN(inputs=[[1.0, 2.0], [1.0]]), r"\[2\] != input 1: \[1\]"),
    ],
)
def test_errors(call, message: str) -> None:
    for device in (CPU, WGPU):
        with tf.device(device), pytest.raises(tf.errors.InvalidArgumentError, match=message):
            call()


def test_shapes_that_do_not_broadcast_may_compare() -> None:
    on_both(
        lambda x, y: raw.Equal(x=x, y=y, incompatible_shape_error=False),
        np.ones(3, "float32"),
        np.ones(2, "float32"),
    )
    on_both(
        lambda x, y: raw.NotEqual(x=x, y=y, incompatible_shape_error=False),
        np.ones(3, "float32"),
        np.ones(2, "float32"),
    )
