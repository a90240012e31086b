"""Fourier transforms: even, odd, prime and cut lengths, batches and empty batches."""

import functools

import numpy as np
import tensorflow as tf
from support import DEVICE

from .core import case

SINGLE, DOUBLE = (1e-4, 1e-4), (1e-10, 1e-10)
TOLERANCES = {"complex64": SINGLE, "float32": SINGLE, "complex128": DOUBLE, "float64": DOUBLE}


def rank(op):
    """The number of axes that the op transforms."""
    return int(op[-2]) if op.endswith("D") and op[-2].isdigit() else 1


@case("FFT", "FFT2D", "FFT3D", "IFFT", "IFFT2D", "IFFT3D", tol=TOLERANCES, gradient=True)
def transforms(t):
    for shape in [(2, 8, 6, 5), (3, 4, 17)]:
        yield dict(input=t.normal("Tcomplex", shape))
    yield dict(input=t.normal("Tcomplex", (0, 2, 3, 4)))


@case(
    "BatchFFT",
    "BatchFFT2D",
    "BatchFFT3D",
    "BatchIFFT",
    "BatchIFFT2D",
    "BatchIFFT3D",
    tol=TOLERANCES,
)
def legacy(t):
    x = (t.rng.normal(size=(2, 3, 4, 5)) + 1j * t.rng.normal(size=(2, 3, 4, 5))).astype("complex64")

    def run():
        # TensorFlow has no CPU kernels under these names, and runs them only in graphs of its first
        # year.
        if DEVICE not in tf.identity(x).device:
            return getattr(tf.raw_ops, t.op.removeprefix("Batch"))(input=tf.constant(x))
        graph = tf.Graph()
        with graph.as_default(), tf.device(DEVICE):
            fed = tf.compat.v1.placeholder(tf.complex64, x.shape, name="x")
            getattr(tf.raw_ops, t.op.removeprefix("Batch"))(input=fed, name="y")
        old = graph.as_graph_def()
        old.versions.producer = 14
        for node in old.node:
            if node.name == "y":
                node.op = t.op
                node.attr.clear()
        with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
            tf.import_graph_def(old, name="")
            got = session.run("y:0", {"x:0": x})
        return tf.constant(got)

    yield t.program(run)


@case("RFFT", "RFFT2D", "RFFT3D", tol=TOLERANCES)
def real_input(t):
    n = rank(t.op)
    for shape, lengths in [
        ((2, 8, 6, 10), (8, 6, 10)),
        ((2, 4, 3, 7), (4, 3, 7)),
        ((2, 4, 5, 9), (3, 5, 4)),
    ]:
        lengths = np.array(lengths[-n:], np.int32)
        yield dict(input=t.normal("Treal", shape), fft_length=lengths, Tcomplex=t["Tcomplex"])


@case("IRFFT", "IRFFT2D", "IRFFT3D", tol=TOLERANCES)
def real_output(t):
    n = rank(t.op)
    for shape, lengths in [
        ((2, 8, 6, 6), (8, 6, 10)),
        ((2, 4, 3, 4), (4, 3, 7)),
        ((2, 4, 5, 9), (3, 5, 4)),
    ]:
        lengths = np.array(lengths[-n:], np.int32)
        yield dict(input=t.normal("Tcomplex", shape), fft_length=lengths, Treal=t["Treal"])


@case("FFTND", "IFFTND", "RFFTND", "IRFFTND", tol=TOLERANCES)
def given_axes(t):
    real = t.op == "RFFTND"
    result = t["Treal"] if t.op == "IRFFTND" else t["Tcomplex"]
    other = {"RFFTND": {"Tcomplex": t["Tcomplex"]}, "IRFFTND": {"Treal": result}}.get(t.op, {})
    for shape, lengths, axes in [
        ((2, 8, 6), (8, 6), (1, 2)),
        ((3, 4, 5), (3, 4, 5), (-3, -2, -1)),
        ((2, 11), (7,), (1,)),
    ]:
        x = t.normal("Treal" if real else "Tcomplex", shape)
        if t.op == "IRFFTND":
            lengths = (*lengths[:-1], 2 * (lengths[-1] - 1))
        yield t.program(functools.partial(transform_axes, t.op, x, lengths, axes, result, other))


def transform_axes(op, x, lengths, axes, result, other):
    """The op, or numpy's function on the CPU, for which TensorFlow has no kernel."""
    if DEVICE in tf.identity(x).device:
        arguments = dict(
            input=tf.constant(x), fft_length=tf.constant(lengths), axes=tf.constant(axes)
        )
        return getattr(tf.raw_ops, op)(**arguments, **other)
    want = getattr(np.fft, op.removesuffix("D").lower())(x, lengths, axes)
    return tf.constant(want.astype(result.as_numpy_dtype))
