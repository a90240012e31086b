"""Pooling and its gradients. The CPU's kernels support only channels last."""

import numpy as np
import tensorflow as tf
from support import DEVICE

from .core import case

TOL = {"float32": (2e-5, 1e-5), "float16": (1e-2, 1e-2), "bfloat16": (6e-2, 6e-2)}
#: At most 256 elements, so that they can all differ in every type: with ties, the chosen element
#: depends on the device.
WINDOWS = [
    ((2, 7, 6, 3), 3, 2, "SAME"),
    ((1, 5, 5, 2), 2, 1, "VALID"),
    ((0, 4, 4, 1), 2, 2, "VALID"),
]
WINDOWS_3D = [
    ((2, 3, 5, 4, 2), 3, 2, "SAME"),
    ((1, 3, 4, 5, 2), 2, 1, "VALID"),
    ((0, 3, 4, 4, 1), 2, 2, "VALID"),
]
#: The CPU has no kernel, or refuses empty tensors.
NO_EMPTY = (
    "MaxPool3DGradGrad",
    "MaxPoolGradGrad",
    "MaxPoolGradGradV2",
    "MaxPoolWithArgmax",
    "MaxPoolGradWithArgmax",
)
CPU_AS = {"float16": "float32", "bfloat16": "float32"}


def attributes(t, window, stride, padding):
    spatial = 3 if "3D" in t.op else 2
    sizes = {"ksize": [1, *[window] * spatial, 1], "strides": [1, *[stride] * spatial, 1]}
    if t.op.endswith("V2"):
        sizes = {k: np.asarray(v, "int32") for k, v in sizes.items()}
    return sizes | {"padding": padding}


def cases(t):
    """Arguments, the input's shape and the output's for each window."""
    for shape, window, stride, padding in WINDOWS_3D if "3D" in t.op else WINDOWS:
        if shape[0] == 0 and t.op in NO_EMPTY:
            continue
        out = [
            -(-n // stride) if padding == "SAME" else (n - window) // stride + 1
            for n in shape[1:-1]
        ]
        yield attributes(t, window, stride, padding), shape, (shape[0], *out, shape[-1])


def distinct(t, shape):
    """Values without ties."""
    n = int(np.prod(shape))
    return (t.rng.permutation(n) / 32 - 4).reshape(shape).astype(t.numpy("T"))


@case("AvgPool", "MaxPool", "MaxPoolV2", tol=TOL)
def forward(t):
    name = "value" if t.op == "AvgPool" else "input"
    for call, shape, _ in cases(t):
        yield {name: distinct(t, shape)} | call


@case("AvgPool3D", "MaxPool3D", tol=TOL, cpu_as=CPU_AS, gradient=False)
def forward_3d(t):
    yield from forward(t)


@case("AvgPoolGrad", tol=TOL)
def average_gradients(t):
    for call, shape, out in cases(t):
        yield dict(orig_input_shape=np.asarray(shape, "int32"), grad=t.normal("T", out)) | call


@case("AvgPool3DGrad", tol=TOL, cpu_as=CPU_AS, gradient=False)
def average_gradients_3d(t):
    yield from average_gradients(t)


def maxima(t, x, call):
    """The results of MaxPool for these arguments, by the windows' definition in float64."""
    sizes = np.asarray(call["ksize"])[1:-1], np.asarray(call["strides"])[1:-1]
    extents = x.shape[1:-1]
    same = call["padding"] == "SAME"
    out = [-(-n // s) if same else (n - k) // s + 1 for n, k, s in zip(extents, *sizes)]
    pads = [
        max((o - 1) * s + k - n, 0) // 2 if same else 0 for o, n, k, s in zip(out, extents, *sizes)
    ]
    y = np.zeros((x.shape[0], *out, x.shape[-1]), x.dtype)
    for at in np.ndindex(*out):
        starts = [o * s - p for o, s, p in zip(at, sizes[1], pads)]
        part = tuple(slice(max(b, 0), b + k) for b, k in zip(starts, sizes[0]))
        y[(slice(None), *at)] = x[(slice(None), *part)].max(axis=tuple(range(1, x.ndim - 1)))
    return y


@case(
    "MaxPool3DGrad",
    "MaxPool3DGradGrad",
    "MaxPoolGrad",
    "MaxPoolGradGrad",
    "MaxPoolGradGradV2",
    "MaxPoolGradV2",
    tol=TOL,
    cpu_as=CPU_AS,
    gradient=False,
)
def maximum_gradients(t):
    for call, shape, out in cases(t):
        x = distinct(t, shape)
        grad = t.normal("T", shape if "GradGrad" in t.op else out)
        yield dict(orig_input=x, orig_output=maxima(t, x, call), grad=grad) | call


def argmax(t, x, call):
    """Positions of the maxima, counted within each image."""
    image = int(np.prod(x.shape[1:]))
    places = np.arange(image).reshape(1, *x.shape[1:])
    best = maxima(t, x, call)
    found = np.zeros(best.shape, "int64")
    ksize, strides = np.asarray(call["ksize"])[1:-1], np.asarray(call["strides"])[1:-1]
    out = best.shape[1:-1]
    same = call["padding"] == "SAME"
    pads = [
        max((o - 1) * s + k - n, 0) // 2 if same else 0
        for o, n, k, s in zip(out, x.shape[1:-1], ksize, strides)
    ]
    for b, i, j, c in np.ndindex(*best.shape):
        rows = slice(max(i * strides[0] - pads[0], 0), i * strides[0] - pads[0] + ksize[0])
        columns = slice(max(j * strides[1] - pads[1], 0), j * strides[1] - pads[1] + ksize[1])
        window = x[b, rows, columns, c]
        found[b, i, j, c] = places[0, rows, columns, c].ravel()[
            int(np.argmax(window.astype("float64")))
        ]
    return found


@case("MaxPoolWithArgmax", tol=TOL)
def with_argmax(t):
    for call, shape, _ in cases(t):
        yield dict(input=distinct(t, shape), Targmax=t["Targmax"]) | call


@case("MaxPoolGradWithArgmax", tol=TOL, gradient=False)
def gradient_by_argmax(t):
    for call, shape, out in cases(t):
        x = distinct(t, shape)
        yield dict(input=x, grad=t.normal("T", out), argmax=argmax(t, x, call)) | call


@case("MaxPoolGradGradWithArgmax", tol=TOL)
def second_gradient_by_argmax(t):
    for call, shape, _ in cases(t):
        x, grad = distinct(t, shape), t.normal("T", shape)
        yield t.program(picked(x, grad, argmax(t, x, call), call))


def picked(x, grad, places, call):
    """The op on WGPU. On the CPU, which lacks it, its definition: the elements of `grad` at the
    indices of argmax.
    """

    def run():
        device_grad = tf.constant(grad)
        if DEVICE in device_grad.device:
            return tf.raw_ops.MaxPoolGradGradWithArgmax(
                input=x, grad=device_grad, argmax=places, **call
            )
        flat = grad.reshape(len(grad), int(np.prod(grad.shape[1:])))
        taken = [image[at.ravel()] for image, at in zip(flat, places)]
        return tf.constant(np.asarray(taken, grad.dtype).reshape(places.shape))

    return run
