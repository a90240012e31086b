"""Simulated quantization, and checks of values."""

import numpy as np
import tensorflow as tf

from .core import case
from .removed import removed_op

#: The attributes of a range in which zero is not a step, of one that does not contain zero, and of
#: one with few steps.
RANGES = (
    (-3.1, 5.3, {"num_bits": 8}),
    (0.5, 4.0, {"num_bits": 4, "narrow_range": True}),
    (-6.0, -1.0, {"num_bits": 2}),
)


@case("FakeQuantWithMinMaxArgs")
def fake_args(t):
    for low, high, attributes in RANGES:
        yield dict(inputs=t.uniform(tf.float32, (5, 7), -8, 8), min=low, max=high, **attributes)
    yield dict(inputs=t.uniform(tf.float32, (), -8, 8))
    yield dict(inputs=t.uniform(tf.float32, (0, 3), -8, 8))


@case("FakeQuantWithMinMaxArgsGradient")
def fake_args_gradient(t):
    for low, high, attributes in RANGES:
        x, g = t.uniform(tf.float32, (5, 7), -8, 8), t.normal(tf.float32, (5, 7))
        yield dict(gradients=g, inputs=x, min=low, max=high, **attributes)


@case("FakeQuantWithMinMaxVars", gradient=True)
def fake_vars(t):
    for low, high, attributes in (*RANGES, (0.0, 0.0, {})):
        x = t.uniform(tf.float32, (5, 7), -8, 8)
        yield dict(inputs=x, min=np.float32(low), max=np.float32(high), **attributes)
    yield dict(inputs=t.uniform(tf.float32, (), -8, 8), min=np.float32(-1), max=np.float32(1))


@case("FakeQuantWithMinMaxVarsGradient")
def fake_vars_gradient(t):
    for low, high, attributes in (*RANGES, (0.0, 0.0, {})):
        x, g = t.uniform(tf.float32, (5, 7), -8, 8), t.normal(tf.float32, (5, 7))
        yield dict(gradients=g, inputs=x, min=np.float32(low), max=np.float32(high), **attributes)


def channels():
    """Bounds of four channels, one of them all zero."""
    return np.float32([-3.1, 0.5, 0.0, -6.0]), np.float32([5.3, 4.0, 0.0, -1.0])


@case("FakeQuantWithMinMaxVarsPerChannel", gradient=True)
def fake_channels(t):
    low, high = channels()
    for shape in ((4,), (5, 4), (2, 3, 3, 4), (0, 4)):
        yield dict(
            inputs=t.uniform(tf.float32, shape, -8, 8),
            min=low,
            max=high,
            num_bits=6,
            narrow_range=len(shape) == 2,
        )


@case("FakeQuantWithMinMaxVarsPerChannelGradient")
def fake_channels_gradient(t):
    low, high = channels()
    for shape in ((4,), (5, 4), (2, 3, 3, 4)):
        x, g = t.uniform(tf.float32, shape, -8, 8), t.normal(tf.float32, shape)
        yield dict(gradients=g, inputs=x, min=low, max=high)


@case("QuantizeAndDequantize")
def quantize_attributes(t):
    def call(x, **attributes):
        return t.program(
            lambda: removed_op("QuantizeAndDequantize", [x], {"T": t["T"]}, 5, **attributes)
        )

    yield call(t.uniform("T", (5, 7), -3, 2))
    yield call(
        t.uniform("T", (5, 7), -3, 2), range_given=True, input_min=-1.5, input_max=0.5, num_bits=4
    )
    yield call(t.uniform("T", (9,), 0, 2), signed_input=False, num_bits=3)
    yield call(t.uniform("T", (), -3, 2))
    yield call(np.zeros((4,), t.numpy("T")))


def bounds(t, low, high):
    """Input bounds."""
    return dict(input_min=np.asarray(low, t.numpy("T")), input_max=np.asarray(high, t.numpy("T")))


@case("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def quantize(t):
    for mode in ("HALF_TO_EVEN", "HALF_UP"):
        for narrow in (False, True):
            given = dict(round_mode=mode, narrow_range=narrow)
            yield dict(input=t.uniform("T", (5, 7), -3, 2), **bounds(t, 0, 0), **given)
            yield dict(
                input=t.uniform("T", (9,), -3, 2),
                **bounds(t, -1.5, 0.5),
                range_given=True,
                num_bits=4,
                **given,
            )
    yield dict(
        input=np.arange(-6, 7).astype(t.numpy("T")) / 2,
        **bounds(t, -4, 3),
        range_given=True,
        num_bits=3,
    )
    yield dict(input=t.uniform("T", (2, 3, 4), -3, 2), **bounds(t, [0] * 3, [0] * 3), axis=1)
    yield dict(
        input=t.uniform("T", (2, 3, 4), 0, 2),
        **bounds(t, [0] * 4, [0] * 4),
        axis=2,
        signed_input=False,
    )
    yield dict(
        input=t.uniform("T", (3, 2), -3, 2), **bounds(t, [0] * 3, [0] * 3), axis=0, num_bits=24
    )


@case("QuantizeAndDequantizeV3")
def quantize_bits(t):
    yield dict(input=t.uniform("T", (5, 7), -3, 2), **bounds(t, -1.5, 0.5), num_bits=np.int32(5))
    yield dict(
        input=t.uniform("T", (5, 7), -3, 2),
        **bounds(t, 0, 0),
        num_bits=np.int32(8),
        range_given=False,
    )
    low, high = [-1.0, -2.0, 0.0], [1.0, 0.5, 1.5]
    yield dict(
        input=t.uniform("T", (2, 3, 4), -3, 2), **bounds(t, low, high), num_bits=np.int32(8), axis=1
    )


# TensorFlow registers a gradient of this gradient that fails.
@case("QuantizeAndDequantizeV4Grad", gradient=False)
def quantize_grad(t):
    x, g = t.uniform("T", (2, 3, 4), -3, 3), t.normal("T", (2, 3, 4))
    yield dict(gradients=g, input=x, **bounds(t, -1.5, 0.5))
    yield dict(gradients=g, input=x, **bounds(t, [-1.0, -2.0, 0.0], [1.0, 0.5, 1.5]), axis=1)


@case("CheckNumerics", "CheckNumericsV2", gradient=None)
def check_numerics(t):
    yield dict(tensor=t.normal("T", (5, 7)), message="finite")
    yield dict(tensor=t.normal("T", ()), message="finite")
    yield dict(tensor=t.normal("T", (0, 3)), message="finite")
    op = getattr(tf.raw_ops, t.op)

    def messages():
        for bad in (
            [1, np.nan],
            [np.inf, 1],
            [-np.inf],
            [np.nan, np.inf],
            [np.nan, -np.inf],
            [np.inf, -np.inf, np.nan],
        ):
            try:
                op(tensor=tf.constant(np.asarray(bad, t.numpy("T"))), message="bad")
                yield "passed"
            except tf.errors.InvalidArgumentError as error:
                yield error.message[error.message.index("bad : ") :].split(" values")[0]

    yield t.program(
        lambda: [tf.constant(len(m) * 1000 + sum(map(ord, m)), tf.float32) for m in messages()]
    )
