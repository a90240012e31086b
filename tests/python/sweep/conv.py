"""Convolutions and their gradients."""

from .core import case
from .removed import removed_op

HALVES = {"float16": (1e-2, 5e-2), "bfloat16": (5e-2, 3e-1)}

# TensorFlow's CPU has groups and dilations of 16-bit floats only on processors for which oneDNN
# computes them.
WIDE = {"float16": "float32", "bfloat16": "float32"}

# Input, filter and attributes; TensorFlow's CPU has only channels last.
PLANES = [
    ((2, 5, 6, 4), (3, 2, 4, 3), {"strides": [1, 1, 1, 1], "padding": "SAME"}),
    ((1, 7, 5, 4), (3, 3, 2, 6), {"strides": [1, 2, 1, 1], "padding": "VALID"}),
    (
        (2, 6, 6, 2),
        (3, 3, 2, 4),
        {"strides": [1, 1, 1, 1], "padding": "VALID", "dilations": [1, 2, 1, 1]},
    ),
    (
        (1, 4, 4, 3),
        (2, 2, 3, 5),
        {
            "strides": [1, 2, 2, 1],
            "padding": "EXPLICIT",
            "explicit_paddings": [0, 0, 1, 0, 1, 2, 0, 0],
        },
    ),
    # oneDNN's Conv2D gives an empty batch the input's depth, so there are as many filters.
    ((0, 4, 4, 3), (3, 3, 3, 3), {"strides": [1, 1, 1, 1], "padding": "SAME"}),
]
VOLUMES = [
    ((2, 4, 3, 5, 4), (2, 3, 2, 4, 3), {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}),
    ((1, 5, 4, 5, 2), (3, 2, 3, 2, 4), {"strides": [1, 2, 1, 2, 1], "padding": "VALID"}),
]


def supported(t, cases):
    """Without oneDNN the CPU's gradients support neither groups nor dilations, and no CPU kernel
    supports groups of integers.
    """
    plain = t["T"] in ("float64", "int32")
    return [c for c in cases if not plain or (c[0][-1] == c[1][-2] and "dilations" not in c[2])]


def extents(size, kernel, stride, dilation, padding, pads):
    """The output's extents."""
    out = []
    for d, n in enumerate(size):
        effective = (kernel[d] - 1) * dilation[d] + 1
        room = n + sum(pads[d]) - effective + stride[d]
        out.append(-(-n // stride[d]) if padding == "SAME" else room // stride[d])
    return out


def output_shape(x, w, attributes, filters):
    """The shape of the output of a channels-last convolution."""
    dilations = attributes.get("dilations", [1] * len(x))
    pads = attributes.get("explicit_paddings", [0] * 2 * len(x))
    pads = list(zip(pads[::2], pads[1::2]))
    spatial = extents(
        x[1:-1],
        w[:-2],
        attributes["strides"][1:-1],
        dilations[1:-1],
        attributes["padding"],
        pads[1:-1],
    )
    return (x[0], *spatial, filters)


@case("Conv2D", "Conv3D", "Conv", tol=HALVES)
def conv(t):
    shapes = {
        "Conv2D": PLANES,
        "Conv3D": VOLUMES,
        "Conv": [c for c in PLANES[:3] + VOLUMES if c[0][-1] == c[1][-2]],
    }
    for x, w, attributes in supported(t, shapes[t.op]):
        yield dict(input=t.values("T", x), filter=t.values("T", w), **attributes)


@case("Conv2DBackpropInput", "Conv3DBackpropInputV2", tol=HALVES, cpu_as=WIDE)
def conv_input(t):
    for x, w, attributes in supported(t, PLANES if t.op == "Conv2DBackpropInput" else VOLUMES):
        dy = t.values("T", output_shape(x, w, attributes, w[-1]))
        yield dict(input_sizes=list(x), filter=t.values("T", w), out_backprop=dy, **attributes)


@case("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", tol=HALVES, cpu_as=WIDE)
def conv_filter(t):
    for x, w, attributes in supported(t, PLANES if t.op == "Conv2DBackpropFilter" else VOLUMES):
        dy = t.values("T", output_shape(x, w, attributes, w[-1]))
        yield dict(input=t.values("T", x), filter_sizes=list(w), out_backprop=dy, **attributes)


@case("Conv3DBackpropInput", "Conv3DBackpropFilter", tol=HALVES)
def conv_old(t):
    if t["T"] == "bfloat16":
        # TensorFlow has kernels of this type, but the op's definition refuses it, so they cannot
        # run.
        yield t.program(list)
        return
    for x, w, attributes in VOLUMES:
        dy = t.values("T", output_shape(x, w, attributes, w[-1]))
        inputs = [t.values("T", x), t.values("T", w), dy]
        yield t.program(
            lambda inputs=inputs, attributes=attributes: removed_op(
                t.op, inputs, t.types, producer=9, **attributes
            )
        )


@case(
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropInput",
    "DepthwiseConv2dNativeBackpropFilter",
    tol=HALVES,
)
def depthwise(t):
    for x, w, attributes in [
        ((2, 5, 6, 4), (3, 2, 4, 1), {"strides": [1, 1, 1, 1], "padding": "SAME"}),
        ((1, 7, 5, 3), (3, 3, 3, 2), {"strides": [1, 2, 2, 1], "padding": "VALID"}),
    ]:
        dy = t.values("T", output_shape(x, w, attributes, x[-1] * w[-1]))
        tensors = {
            "DepthwiseConv2dNative": dict(input=t.values("T", x), filter=t.values("T", w)),
            "DepthwiseConv2dNativeBackpropInput": dict(
                input_sizes=list(x), filter=t.values("T", w), out_backprop=dy
            ),
            "DepthwiseConv2dNativeBackpropFilter": dict(
                input=t.values("T", x), filter_sizes=list(w), out_backprop=dy
            ),
        }
        yield dict(**tensors[t.op], **attributes)
