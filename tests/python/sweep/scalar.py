"""Elementwise ops: lists of names, with arguments of ordinary size within their domains."""

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from .core import case

HALF = {"float16": (5e-3, 5e-3), "bfloat16": (4e-2, 4e-2)}
COMPLEX = ("complex64", "complex128")
SHAPES = [(3, 7), (2, 0, 3), ()]
PAIRS = [((3, 7), (3, 7)), ((3, 1), (7,)), ((2, 0), ()), ((), ())]

#: Functions of one argument with its range. None: any values of the type.
UNARY = {
    "Abs": None,
    "Acos": (-0.9, 0.9),
    "Acosh": (1.2, 5),
    "Asin": (-0.9, 0.9),
    "Asinh": (-5, 5),
    "Atan": (-5, 5),
    "Atanh": (-0.9, 0.9),
    "Ceil": (-5, 5),
    "Cos": (-9, 9),
    "Cosh": (-4, 4),
    "Elu": (-3, 3),
    "Erf": (-2, 2),
    "Erfc": (-2, 2),
    "Erfinv": (-0.9, 0.9),
    "Exp": (-4, 4),
    "Expm1": (-3, 3),
    "Floor": (-5, 5),
    "Invert": None,
    "Lgamma": (0.5, 9),
    "Log": (0.1, 9),
    "Log1p": (-0.5, 9),
    "LogicalNot": None,
    "Ndtri": (0.05, 0.95),
    "Neg": None,
    "PopulationCount": None,
    "Relu": None,
    "Relu6": (-2, 9),
    "Rsqrt": (0.2, 9),
    "Selu": (-3, 3),
    "Sigmoid": (-5, 5),
    "Sign": None,
    "Sin": (-9, 9),
    "Sinh": (-4, 4),
    "Softplus": (-9, 9),
    "Softsign": (-5, 5),
    "Sqrt": (0.1, 9),
    "Square": None,
    "Tan": (-1.2, 1.2),
    "Tanh": (-3, 3),
}

#: Gradients by two tensors of one shape, with the range of the one that is not the incoming
#: gradient.
GRADIENTS = {
    "EluGrad": (-0.9, 3),
    "InvGrad": (-2, 2),
    "ReciprocalGrad": (-2, 2),
    "Relu6Grad": (-2, 9),
    "ReluGrad": (-2, 2),
    "RsqrtGrad": (0.2, 3),
    "SeluGrad": (-1.5, 3),
    "SigmoidGrad": (0.05, 0.95),
    "SoftplusGrad": (-5, 5),
    "SoftsignGrad": (-5, 5),
    "SqrtGrad": (0.2, 3),
    "TanhGrad": (-0.9, 0.9),
}


def is_inexact(t, attr="T"):
    return t[attr].is_floating or t[attr].is_complex


def names(op):
    """The names of an op's inputs."""
    return [arg.name for arg in op_def_registry.get(op).input_arg]


def pairs(t):
    """Shapes of two operands, with large ones in the longer sweep."""
    return [*PAIRS, *((shape, ()) for shape in t.large())]


def values(t, shape, domain=None):
    """Values of the attribute T, or of bool if the op has no types."""
    attr = "T" if "T" in t.types else np.bool_
    if attr != "T":
        return np.asarray(t.rng.integers(0, 2, shape)).astype(bool)
    return t.uniform("T", shape, *domain) if domain and is_inexact(t) else t.values("T", shape)


def without_zero(t, shape):
    """Values away from zero, of either sign if the type is signed."""
    if is_inexact(t):
        return np.asarray(t.uniform("T", shape, 0.5, 3) * np.sign(t.rng.normal(size=shape))).astype(
            t.numpy("T")
        )
    x = t.integers("T", shape, 1, 9)
    if t["T"].is_unsigned:
        return x
    return np.asarray(x * (1 - 2 * t.rng.integers(0, 2, shape))).astype(t.numpy("T"))


@case(*UNARY, tol=HALF | {"float32": (3e-5, 1e-5), "complex64": (3e-5, 3e-5)}, no_gradient=COMPLEX)
def unary(t):
    for shape in [*SHAPES, *t.large()]:
        yield {names(t.op)[0]: values(t, shape, UNARY[t.op])}


# The CPU's kernels return 0 for every int32 and int64, and there is no Rint of float16.
@case("Rint", "Round", cpu_as={"float16": "float32", "int32": "float64", "int64": "float64"})
def to_whole_numbers(t):
    for shape in [*SHAPES, *t.large()]:
        yield dict(x=t.uniform("T", shape, -5, 5))


# Its gradient is Polygamma.
@case("Digamma", tol=HALF, gradient=False)
def digamma(t):
    for shape in [*SHAPES, *t.large()]:
        yield dict(x=t.uniform("T", shape, 0.5, 6))


@case("Inv", "Reciprocal", tol=HALF, cpu_as={"int64": "float64"}, no_gradient=COMPLEX)
def reciprocals(t):
    for shape in [*SHAPES, *t.large()]:
        yield dict(x=without_zero(t, shape))


@case("IsFinite", "IsInf", "IsNan")
def tests(t):
    for shape in [*SHAPES, *t.large()]:
        x = t.normal("T", shape)
        yield dict(x=np.select([x > 1, x < -1], [np.inf, np.nan], x).astype(x.dtype))


@case(*GRADIENTS, tol=HALF | {"float32": (3e-5, 3e-5), "complex64": (3e-5, 3e-5)})
def gradients(t):
    incoming = {"gradients", "dy"}
    for shape in [*SHAPES, *t.large()]:
        yield {
            n: t.normal("T", shape) if n in incoming else values(t, shape, GRADIENTS[t.op])
            for n in names(t.op)
        }


@case("LeakyRelu", "LeakyReluGrad", tol=HALF)
def leaky(t):
    for shape in [*SHAPES, *t.large()]:
        yield {n: t.normal("T", shape) for n in names(t.op)} | {"alpha": 0.3}


@case("Add", "AddV2", "Maximum", "Minimum", "Mul", "MulNoNan", "SquaredDifference", "Sub", tol=HALF)
def arithmetic(t):
    for x, y in pairs(t):
        yield dict(x=t.values("T", x), y=t.values("T", y))


@case("Xdivy", tol=HALF, no_gradient=COMPLEX)
def quotient_or_zero(t):
    yield from quotients(t)


@case(
    "Div",
    "DivNoNan",
    "FloorDiv",
    "FloorMod",
    "Mod",
    "RealDiv",
    "TruncateDiv",
    "TruncateMod",
    tol=HALF,
)
def quotients(t):
    for x, y in pairs(t):
        yield dict(x=t.values("T", x), y=without_zero(t, y))


@case("Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual")
def comparisons(t):
    low, high = (0, 2) if t["T"].is_bool or t["T"].is_unsigned else (-2, 3)
    for x, y in pairs(t):
        yield dict(x=t.integers("T", x, low, high), y=t.integers("T", y, low, high))


@case("LogicalAnd", "LogicalOr")
def logic(t):
    for x, y in pairs(t):
        yield dict(x=values(t, x), y=values(t, y))


@case("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bits(t):
    for x, y in pairs(t):
        yield dict(x=t.values("T", x), y=t.values("T", y))


@case("LeftShift", "RightShift")
def shifts(t):
    for x, y in pairs(t):
        yield dict(x=t.values("T", x), y=t.integers("T", y, 0, 8 * t["T"].size))


@case("Atan2", "NextAfter", gradient=False, tol=HALF)
def of_two_signs(t):
    first, second = names(t.op)
    for x, y in pairs(t):
        yield {first: t.normal("T", x), second: without_zero(t, y)}


# The gradient takes a logarithm of complex numbers.
@case(
    "Pow",
    no_gradient=COMPLEX,
    tol=HALF | {"float32": (3e-5, 3e-5), "complex64": (1e-4, 1e-4), "complex128": (1e-11, 1e-11)},
)
def power(t):
    for x, y in pairs(t):
        if is_inexact(t):
            yield dict(x=t.uniform("T", x, 0.5, 2), y=t.uniform("T", y, -2, 2))
        else:
            yield dict(x=t.values("T", x), y=t.integers("T", y, 0, 4))


@case("Xlog1py", "Xlogy", tol=HALF | {"float32": (3e-5, 3e-5), "complex64": (3e-5, 3e-5)})
def products_with_logarithms(t):
    for x, y in pairs(t):
        yield dict(
            x=(t.normal("T", x) * t.rng.integers(0, 2, x)).astype(t.numpy("T")),
            y=t.uniform("T", y, 0.5, 4),
        )


@case("ApproximateEqual")
def approximately(t):
    for shape in [*SHAPES, *t.large()]:
        x = t.values("T", shape)
        far = (np.where(t.rng.integers(0, 2, shape) == 1, 1, 0)).astype(x.dtype)
        yield dict(x=x, y=(x + far).astype(x.dtype), tolerance=0.5)


@case("Select", "SelectV2")
def choices(t):
    shapes = [((3, 7), (3, 7), (3, 7)), ((), (2, 0), (2, 0)), ((), (), ())]
    shapes.append(((3,), (3, 5), (3, 5)) if t.op == "Select" else ((3, 1), (7,), ()))
    for c, x, y in shapes:
        condition = np.asarray(t.rng.integers(0, 2, c)).astype(bool)
        first, second = t.values("T", x), t.values("T", y)
        if t.op == "Select":
            # In Python its inputs have other names than in the op's definition.
            yield t.program(
                lambda c=condition, a=first, b=second: tf.raw_ops.Select(condition=c, x=a, y=b),
                graph=True,
            )
        else:
            yield dict(condition=condition, t=first, e=second)


@case("ClipByValue")
def clip(t):
    low, high = (2, 6) if t["T"].is_unsigned else (-1, 2)
    for shape in [*SHAPES, *t.large()]:
        bound = t.integers("T", (), low, low + 1)
        yield dict(
            t=t.values("T", shape),
            clip_value_min=bound,
            clip_value_max=t.integers("T", shape, high, high + 3),
        )
    # The lower bound goes first.
    yield dict(
        t=t.values("T", (3, 5)),
        clip_value_min=t.integers("T", (), 5, 6),
        clip_value_max=t.integers("T", (), 2, 3),
    )
    if t["T"].is_floating:
        nan, some = t.integers("T", (), 1, 2) * np.nan, t.values("T", (7,))
        some[3] = np.nan
        yield dict(
            t=some, clip_value_min=nan.astype(some.dtype), clip_value_max=t.integers("T", (), 0, 1)
        )
        yield dict(
            t=some, clip_value_min=t.integers("T", (), 0, 1), clip_value_max=nan.astype(some.dtype)
        )


@case("AddN", tol=HALF)
def sums(t):
    for shape, n in [((3, 7), 2), ((5,), 8), ((2, 0), 3), ((), 1)]:
        yield dict(inputs=[t.values("T", shape) for _ in range(n)])


@case("Cast")
def casts(t):
    narrow = any("4" in t[a].name and t[a].size == 1 for a in ("SrcT", "DstT"))
    for shape in [*SHAPES, *t.large()]:
        x = (
            np.floor(
                t.uniform("SrcT", shape, 0, 7 if narrow else 100).astype("complex128").real * 8
            )
            / 8
        )
        yield dict(x=x.astype(t.numpy("SrcT")), DstT=t["DstT"], Truncate=False)
        if is_inexact(t, "SrcT") and t["DstT"].is_floating:
            yield dict(x=x.astype(t.numpy("SrcT")), DstT=t["DstT"], Truncate=True)


@case("Bitcast", gradient=False)
def bitcasts(t):
    source, target = t["T"].size, t["type"].size
    for shape in [(3, 8), (2, 0, 8)]:
        tail = (target // source,) if source < target else ()
        x = t.integers("T", shape + tail, 0, 100)
        yield dict(input=x, type=t["type"])
