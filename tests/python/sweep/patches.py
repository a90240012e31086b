"""Patches, dilation and local response normalization."""

import tensorflow as tf

from .core import case


@case("ExtractImagePatches", gradient=False, cpu_as={"bool": "uint8"})
def image_patches(t):
    """TensorFlow's gradients extract patches of int64 indices, which its GPU lacks."""
    for padding in "SAME", "VALID":
        for sizes, strides, rates in [
            ((2, 3), (1, 2), (1, 1)),
            ((1, 2), (3, 1), (1, 3)),
            ((3, 3), (2, 2), (2, 1)),
        ]:
            for channels in 1, 2, 3, 8:
                yield dict(
                    images=t.values("T", (2, 7, 8, channels)),
                    ksizes=[1, *sizes, 1],
                    strides=[1, *strides, 1],
                    rates=[1, *rates, 1],
                    padding=padding,
                )
    ones = [1, 1, 1, 1]
    yield dict(
        images=t.values("T", (0, 5, 5, 3)),
        ksizes=[1, 2, 2, 1],
        strides=ones,
        rates=ones,
        padding="SAME",
    )


@case("ExtractVolumePatches", gradient=False)
def volume_patches(t):
    for padding in "SAME", "VALID":
        for sizes, strides in [((2, 3, 1), (1, 2, 1)), ((1, 2, 2), (3, 1, 2))]:
            for channels in 1, 2, 3:
                yield dict(
                    input=t.values("T", (2, 4, 5, 6, channels)),
                    ksizes=[1, *sizes, 1],
                    strides=[1, *strides, 1],
                    padding=padding,
                )
    ones = [1, 1, 1, 1, 1]
    yield dict(
        input=t.values("T", (0, 3, 3, 3, 2)), ksizes=[1, 2, 2, 2, 1], strides=ones, padding="SAME"
    )


DILATED = {"float16": (1e-2, 1e-2), "bfloat16": (5e-2, 1e-1)}


def dilations(t, out):
    """Small integers, so that ties are common; `out` makes the gradient from the output's shape, or
    is None.
    """
    for padding in "SAME", "VALID":
        for kernel, strides, rates in [
            ((2, 3), (1, 1), (1, 1)),
            ((3, 2), (2, 1), (1, 2)),
            ((1, 1), (2, 3), (1, 1)),
        ]:
            for batch in 2, 0:
                x, w = (
                    t.integers("T", (batch, 6, 7, 3), -3, 4),
                    t.integers("T", (*kernel, 3), -2, 3),
                )
                call = dict(
                    input=x,
                    filter=w,
                    strides=[1, *strides, 1],
                    rates=[1, *rates, 1],
                    padding=padding,
                )
                if out:
                    with tf.device("/device:CPU:0"):
                        y = tf.raw_ops.Dilation2D(**call)
                    call["out_backprop"] = out(y.shape)
                yield call


@case("Dilation2D", gradient=True, tol=DILATED)
def dilation(t):
    yield from dilations(t, None)


@case("Dilation2DBackpropFilter", "Dilation2DBackpropInput", gradient=False, tol=DILATED)
def dilation_gradients(t):
    yield from dilations(t, lambda shape: t.integers("T", tuple(shape), -4, 5))


@case("LRN", gradient=True, rtol=1e-4, atol=1e-5)
def local_response(t):
    for depth, options in [
        (7, {}),
        (12, dict(depth_radius=2, bias=1.5, alpha=0.3, beta=0.75)),
        (5, dict(depth_radius=3, beta=1.0)),
    ]:
        yield dict(input=t.normal("T", (2, 3, 4, depth)), **options)
    yield dict(input=t.normal("T", (0, 3, 4, 2)))


@case("LRNGrad", gradient=False, rtol=1e-4, atol=1e-5)
def local_response_gradient(t):
    for shape in [(2, 3, 4, 9), (0, 3, 4, 2)]:
        x, y, dy = (t.normal("T", shape) for _ in range(3))
        yield dict(
            input_grads=dy,
            input_image=x,
            output_image=y,
            depth_radius=2,
            bias=1.5,
            alpha=0.3,
            beta=0.75,
        )
