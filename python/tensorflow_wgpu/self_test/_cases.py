"""The table of the self-test: a case for each family of kernels, and more if a family has parts
that share little code.

A case makes its arguments with `t` (`_values.Values`) and returns results by the names of the ops
that made them. It runs once for each type, on WGPU and on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensorflow_wgpu import _recurrent_ops
from tensorflow_wgpu.self_test._values import Values

FLOATS = ("float32", "float16")
SINGLE = ("float32",)
raw = tf.raw_ops


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    family: str
    name: str
    run: Callable[[Values], dict[str, Any]]
    types: tuple[str, ...]
    #: Relative and absolute tolerance by type; all other types must be equal.
    tolerance: dict[str, tuple[float, float]]
    #: Whether results are equal bit for bit in every type.
    exact: bool


TOLERANCE = {
    "float32": (2e-5, 2e-5),
    "complex64": (1e-4, 1e-4),
    "float16": (4e-3, 4e-3),
}
CASES: list[Case] = []


def case(family: str, types: tuple[str, ...] = FLOATS, *, exact: bool = False, **loose: float):
    """Adds the decorated function as a row. `float16=2e-2` sets a special tolerance, both relative
    and absolute.
    """

    def add(run: Callable[[Values], dict[str, Any]]) -> Callable[[Values], dict[str, Any]]:
        tolerance = TOLERANCE | {name: (value, value) for name, value in loose.items()}
        CASES.append(Case(family, run.__name__, run, types, tolerance, exact))
        return run

    return add


@case("scalar")
def elementwise(t):
    x, y = t.normal(33, 65), t.uniform(0.5, 2, 33, 65)
    return {
        "AddV2": x + y[0],
        "Mul": x * y,
        "RealDiv": x / y,
        "Exp": tf.exp(x),
        "Log": tf.math.log(y),
        "Tanh": tf.tanh(x),
        "Sigmoid": tf.sigmoid(x),
        "Erf": tf.math.erf(x),
        "Rsqrt": tf.math.rsqrt(y),
        "Pow": tf.pow(y, x),
        "FloorMod": tf.math.floormod(x, y),
        "SelectV2": tf.where(x > y, x, y),
        "Relu": tf.nn.relu(x),
    }


@case("scalar", ("int64", "uint8", "bool"))
def whole_numbers(t):
    x, y = t.uniform(0, 99, 7, 33), t.uniform(1, 9, 7, 33)
    if t.dtype == tf.bool:
        return {"LogicalAnd": x & y, "LogicalNot": ~x}
    return {"AddV2": x + y, "Mul": x * y, "Less": x < y, "Cast": tf.cast(x, tf.float32)}


@case("complex", SINGLE)
def complex_numbers(t):
    x, y = t.complex(9, 17), t.complex(9, 17)
    return {"Mul": x * y, "ComplexAbs": tf.abs(x), "Exp": tf.exp(x), "Conj": tf.math.conj(x)}


@case("bias", float16=1e-2)
def bias(t):
    x = t.normal(4, 5, 6, 7)
    return {
        "BiasAdd": raw.BiasAdd(value=x, bias=t.normal(7)),
        "BiasAddGrad": raw.BiasAddGrad(out_backprop=x),
    }


@case("reduce", float16=1e-2)
def reductions(t):
    x = t.normal(37, 130)
    return {
        "Sum": [tf.reduce_sum(x, axis) for axis in (None, 0, 1)],
        "Mean": tf.reduce_mean(x, 0),
        "Max": tf.reduce_max(x, 1),
        "Prod": tf.reduce_prod(x[:, :5], 1),
        "ArgMax": tf.argmax(x, 1),
        "L2Loss": tf.nn.l2_loss(x),
    }


@case("matmul", float32=1e-4, float16=2e-2)
def products(t):
    a, b = t.normal(70, 66), t.normal(66, 130)
    return {
        "MatMul": [a @ b, tf.matmul(a, a, transpose_b=True), tf.matmul(b, a, True, True)],
        "BatchMatMulV2": tf.matmul(t.normal(3, 9, 20), t.normal(3, 20, 7)),
        "MatMul (one row)": t.normal(1, 256) @ t.normal(256, 64),
    }


@case("einsum", float32=1e-4, float16=2e-2)
def einsum(t):
    a, b = t.normal(2, 9, 12), t.normal(12, 3, 4)
    # tf.einsum with such an equation is a single op on every version.
    return {"Einsum": raw.Einsum(inputs=[a, b], equation="abc,cde->abde")}


@case("conv", float32=1e-4, float16=3e-2)
def convolutions(t):
    x, w, y = t.normal(2, 9, 11, 8), t.normal(3, 3, 8, 16), t.normal(2, 9, 11, 16)
    how = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    return {
        "Conv2D": raw.Conv2D(input=x, filter=w, **how),
        "Conv2D (1×1, stride 2)": tf.nn.conv2d(x, t.normal(1, 1, 8, 4), 2, "VALID"),
        "Conv2DBackpropInput": raw.Conv2DBackpropInput(
            input_sizes=[2, 9, 11, 8], filter=w, out_backprop=y, **how
        ),
        "Conv2DBackpropFilter": raw.Conv2DBackpropFilter(
            input=x, filter_sizes=[3, 3, 8, 16], out_backprop=y, **how
        ),
    }


@case("conv", SINGLE, float32=1e-4)
def convolutions_of_volumes(t):
    x, w = t.normal(1, 5, 6, 7, 3), t.normal(2, 3, 2, 3, 4)
    return {"Conv3D": tf.nn.conv3d(x, w, [1, 1, 1, 1, 1], "VALID")}


@case("conv", float32=1e-4, float16=3e-2)
def depthwise_convolutions(t):
    x, w, y = t.normal(2, 9, 11, 8), t.normal(3, 3, 8, 1), t.normal(2, 9, 11, 8)
    how = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    return {
        "DepthwiseConv2dNative": raw.DepthwiseConv2dNative(input=x, filter=w, **how),
        "DepthwiseConv2dNativeBackpropInput": raw.DepthwiseConv2dNativeBackpropInput(
            input_sizes=[2, 9, 11, 8], filter=w, out_backprop=y, **how
        ),
        "DepthwiseConv2dNativeBackpropFilter": raw.DepthwiseConv2dNativeBackpropFilter(
            input=x, filter_sizes=[3, 3, 8, 1], out_backprop=y, **how
        ),
    }


@case("pool")
def pooling(t):
    x = t.normal(2, 8, 10, 6)
    how = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    pooled = raw.MaxPool(input=x, **how)
    grad = t.normal(2, 4, 5, 6)
    return {
        "MaxPool": pooled,
        "MaxPoolGrad": raw.MaxPoolGrad(orig_input=x, orig_output=pooled, grad=grad, **how),
        "AvgPool": raw.AvgPool(value=x, **how),
        "AvgPoolGrad": raw.AvgPoolGrad(orig_input_shape=[2, 8, 10, 6], grad=grad, **how),
    }


@case("softmax")
def softmax(t):
    x = t.normal(9, 130)
    labels = t.of(t.rng.integers(0, 130, 9), tf.int64)
    loss, back = raw.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=labels)
    return {
        "Softmax": tf.nn.softmax(x),
        "LogSoftmax": tf.nn.log_softmax(x),
        "SparseSoftmaxCrossEntropyWithLogits": [loss, back],
    }


@case("norm", SINGLE, float32=1e-4)
def normalization(t):
    x, scale, offset = t.normal(3, 7, 8, 6), t.uniform(0.5, 2, 6), t.normal(6)
    empty = tf.zeros([0])
    # The device chooses the data that the op saves for its gradient, so the test uses a tape.
    with tf.GradientTape() as tape:
        tape.watch([x, scale, offset])
        y, mean, variance, *_ = raw.FusedBatchNormV3(
            x=x, scale=scale, offset=offset, mean=empty, variance=empty, epsilon=1e-3
        )
        loss = tf.reduce_sum(y * t.normal(3, 7, 8, 6))
    return {
        "FusedBatchNormV3": [y, mean, variance],
        "FusedBatchNormGradV3": tape.gradient(loss, [x, scale, offset]),
    }


@case("fused", float32=1e-4, float16=1e-2)
def fused_attention(t):
    q, k, v = t.normal(2, 3, 17, 16), t.normal(2, 3, 21, 16), t.normal(2, 3, 21, 16)

    def attention(q, k, v):
        return tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * 0.25) @ v

    return {"_WgpuFusedAttention": t.fused("_WgpuFusedAttention", attention, q, k, v)}


@case("fused", float16=1e-2)
def fused_concatenation(t):
    x, cos, sin = t.normal(2, 5, 3, 16), t.normal(5, 1, 8), t.normal(5, 1, 8)

    def turn(x, cos, sin):
        low, high = tf.split(x, 2, -1)
        return tf.concat([low * cos - high * sin, low * sin + high * cos], -1)

    return {"_WgpuFusedConcat": t.fused("_WgpuFusedConcat", turn, x, cos, sin)}


@case("fused", float16=1e-2)
def fused_elementwise(t):
    x, y = t.normal(33, 65), t.normal(65)

    def chain(x, y):
        return tf.tanh(x * y + 0.5) * tf.sigmoid(x) - y

    return {"_WgpuFusedElementwise": t.fused("_WgpuFusedElementwise", chain, x, y)}


@case("fused", float32=1e-4, float16=3e-2)
def fused_product(t):
    x, w, b = t.normal(33, 40), t.normal(40, 24), t.normal(24)

    def dense(x, w, b):
        return tf.nn.relu(tf.nn.bias_add(x @ w, b))

    return {"_WgpuFusedMatMul": t.fused("_WgpuFusedMatMul", dense, x, w, b)}


#: The fused ops in the gradients of layers.
LAYERS = (
    "AddedMatMul",
    "JoinedMatMul",
    "JoinedMatMulWithSums",
    "MatMulWithArgument",
    "MatMulWithSums",
)


@case("fused", SINGLE, float32=5e-4)
def fused_layers(t):
    x, y = t.normal(33, 40), t.normal(33, 24)
    weights = [t.normal(40, 24), t.normal(40, 24), t.normal(24, 32), t.normal(32, 24)]
    biases = [t.normal(24), t.normal(24), t.normal(32)]

    def gradients(x, y, weights, biases):
        with tf.GradientTape() as tape:
            tape.watch([x, weights, biases])
            first, second = (tf.nn.bias_add(x @ w, b) for w, b in zip(weights[:2], biases))
            hidden = tf.nn.bias_add((first * second) @ weights[2], biases[2]) / 8
            result = (hidden * tf.sigmoid(hidden)) @ weights[3]
            loss = tf.reduce_sum(tf.square(result - y)) / 1024
        return tape.gradient(loss, [x, *weights, *biases])

    ops = " ".join(f"_WgpuFused{what}" for what in LAYERS)
    return {ops: t.fused(ops, gradients, x, y, weights, biases)}


@case("fused", float16=2e-2)
def fused_rows(t):
    x = t.normal(19, 130)

    def normalize(x):
        mean = tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(x - mean), -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-3)

    return {"_WgpuFusedRowwise": t.fused("_WgpuFusedRowwise", normalize, x)}


@case("fused", SINGLE)
def fused_update(t):
    variables = [t.variable(9, 5), t.variable(5), t.variable(33)]
    gradients = [t.normal(9, 5), t.normal(5), t.normal(33)]

    def descend(*gradients):
        for variable, gradient in zip(variables, gradients):
            variable.assign_sub(gradient * 0.125 * (1 + gradient))
        return tf.identity(gradients[0])

    t.fused("_WgpuFusedUpdate", descend, *gradients)
    return {"_WgpuFusedUpdate": [variable.read_value() for variable in variables]}


@case("fill", ("float32", "float16", "int64"), exact=True)
def fills(t):
    x = t.uniform(0, 9, 5, 7)
    return {"Fill": tf.fill([3, 11], x[0, 0]), "OnesLike": tf.ones_like(x)}


# TensorFlow 2.16 has no Range of float16 on the CPU.
@case("fill", ("float32", "int64"), exact=True)
def ranges(t):
    return {"Range": tf.range(t.of(0), t.of(40), t.of(2))}


@case("movement", ("float32", "float16", "int64"), exact=True)
def movement(t):
    x, y = t.uniform(0, 99, 4, 9, 6), t.uniform(0, 99, 4, 2, 6)
    return {
        "Transpose": [tf.transpose(x, p) for p in ([2, 0, 1], [0, 2, 1], [2, 1, 0])],
        "ConcatV2": tf.concat([x, y], 1),
        "StridedSlice": x[1:, ::-2, 1:5],
        "PadV2": tf.pad(x, [[1, 0], [0, 2], [3, 1]]),
        "Tile": tf.tile(y, [1, 2, 3]),
        "ReverseV2": tf.reverse(x, [0, 2]),
        "Pack": tf.stack([x, x], 1),
        "BroadcastTo": tf.broadcast_to(y[:, :1], [4, 5, 6]),
    }


@case("parallel_concat", SINGLE, exact=True)
def parallel_stack(t):
    parts = [t.normal(7, 3) for _ in range(4)]
    return {"_ParallelConcatUpdate": tf.function(lambda *p: tf.parallel_stack(p))(*parts)}


@case("gather", exact=True)
def gathers(t):
    x = t.normal(19, 6)
    return {
        "GatherV2": tf.gather(x, t.integers(0, 19, 4, 5)),
        "GatherNd": tf.gather_nd(x, t.of(t.rng.integers(0, 6, (9, 2)), tf.int64)),
        "OneHot": tf.one_hot(t.integers(-1, 8, 9), 8, dtype=t.dtype),
    }


@case("scatter", float16=1e-2)
def scatters(t):
    places = t.of(t.rng.permutation(19)[:7, None], tf.int64)
    x, update = t.normal(19, 6), t.normal(7, 6)
    return {
        "TensorScatterUpdate": tf.tensor_scatter_nd_update(x, places, update),
        "TensorScatterAdd": tf.tensor_scatter_nd_add(x, places, update),
        "ScatterNd": tf.scatter_nd(places, update, tf.constant([19, 6], tf.int64)),
        "UnsortedSegmentSum": tf.math.unsorted_segment_sum(x, t.integers(0, 5, 19), 5),
    }


@case("segment", float16=1e-2)
def segments(t):
    ids = t.of(np.sort(t.rng.integers(0, 5, 31)), tf.int64)
    x = t.normal(31, 6)
    return {"SegmentSum": tf.math.segment_sum(x, ids), "SegmentMax": tf.math.segment_max(x, ids)}


@case("sort", exact=True)
def sorting(t):
    # All values differ: the order of equal values depends on the device.
    x = t.of(t.rng.permutation(9 * 130).reshape(9, 130))
    values, places = tf.math.top_k(x, 7)
    return {"TopKV2": [values, places], "TopKV2 (sort)": tf.sort(x), "Where": tf.where(x > 500.0)}


@case("scan", float16=2e-2)
def scans(t):
    x = t.uniform(0.5, 1.5, 5, 130)
    return {
        "Cumsum": [tf.cumsum(x, 1), tf.cumsum(x, 0, exclusive=True, reverse=True)],
        "Cumprod": tf.math.cumprod(x[:, :9], 1),
    }


@case("random", SINGLE, exact=True)
def random_bits(t):
    seed = t.of([7, 1 << 40], tf.int64)
    shape = [257]
    return {
        "StatelessRandomUniform": raw.StatelessRandomUniform(shape=shape, seed=seed),
        "StatelessRandomUniformFullInt": raw.StatelessRandomUniformFullInt(
            shape=shape, seed=seed, dtype=tf.int64
        ),
        "StatelessRandomUniformV2": raw.StatelessRandomUniformV2(
            shape=shape,
            key=tf.constant([5], tf.uint64),
            counter=tf.constant([3, 4], tf.uint64),
            alg=1,
        ),
    }


@case("random", SINGLE)
def random_normals(t):
    seed = t.of([7, 1 << 40], tf.int64)
    return {"StatelessRandomNormal": raw.StatelessRandomNormal(shape=[257], seed=seed)}


@case("fft", SINGLE, float32=1e-4, complex64=2e-4)
def fourier(t):
    x = t.complex(3, 8, 30)
    return {
        "FFT": tf.signal.fft(x),
        "IFFT2D": tf.signal.ifft2d(x),
        "RFFT": tf.signal.rfft(t.normal(5, 34)),
        "FFT (prime)": tf.signal.fft(x[..., :17]),
    }


@case("linalg", SINGLE, float32=1e-3)
def linear_algebra(t):
    a, b = t.normal(3, 9, 9), t.normal(3, 9, 4)
    positive = tf.matmul(a, a, transpose_b=True) + 9 * tf.eye(9)
    lower = tf.linalg.cholesky(positive)
    return {
        "Cholesky": lower,
        "MatrixTriangularSolve": tf.linalg.triangular_solve(lower, b),
        "MatrixSolve": tf.linalg.solve(positive, b),
        "MatrixInverse": tf.linalg.inv(positive),
        "SelfAdjointEigV2": tf.linalg.eigvalsh(positive),
    }


@case("image", SINGLE, float32=1e-4)
def images(t):
    x = t.uniform(0, 1, 2, 7, 9, 3)
    return {
        "ResizeBilinear": tf.image.resize(x, [11, 6]),
        "ResizeNearestNeighbor": tf.image.resize(x, [4, 13], "nearest"),
        "RGBToHSV": tf.image.rgb_to_hsv(x),
        "AdjustContrastv2": tf.image.adjust_contrast(x, 1.5),
    }


@case("patches", SINGLE, float32=1e-4)
def patches(t):
    x = t.normal(2, 7, 9, 3)
    return {
        "ExtractImagePatches": tf.image.extract_patches(
            x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"
        ),
        "LRN": tf.nn.local_response_normalization(x),
    }


@case("quantize", SINGLE)
def quantization(t):
    x = t.uniform(-3, 2, 5, 7)
    return {
        "QuantizeAndDequantizeV2": raw.QuantizeAndDequantizeV2(
            input=x, input_min=-1.5, input_max=0.5, range_given=True, num_bits=4
        ),
        "FakeQuantWithMinMaxArgs": raw.FakeQuantWithMinMaxArgs(inputs=x, min=-3.1, max=5.3),
    }


@case("check_numerics", exact=True)
def checks(t):
    bad = t.of([1.0, np.nan])
    message = ""
    try:
        # The error comes with the result if kernels run asynchronously.
        raw.CheckNumerics(tensor=bad, message="self-test").numpy()
    except tf.errors.InvalidArgumentError as error:
        message = error.message
    return {
        "CheckNumerics": raw.CheckNumerics(tensor=t.normal(5, 7), message="finite"),
        "CheckNumerics (NaN)": np.asarray("self-test : Tensor had NaN" in message),
    }


@case("debug_summary", SINGLE, exact=True)
def debug_summary(t):
    x = t.of([[1.0, np.nan, np.inf, -np.inf, 0.0, -2.0]])
    summary = raw.DebugNumericSummaryV2(
        input=x, output_dtype=tf.float32, tensor_debug_mode=3, tensor_id=7
    )
    return {"DebugNumericSummaryV2": summary}


@case("rnn", float16=2e-2)
def recurrent_cells(t):
    shapes = {"x": (3, 5), "cs_prev": (3, 7), "h_prev": (3, 7), "w": (12, 28), "b": (28,)}
    arguments = {name: t.uniform(-1, 1, *shape) for name, shape in shapes.items()}
    arguments |= {name: t.uniform(-1, 1, 7) for name in ("wci", "wcf", "wco")}
    return {"LSTMBlockCell": list(raw.LSTMBlockCell(**arguments, use_peephole=True))}


@case("rnn", float16=2e-2)
def recurrent_layers(t):
    """TensorFlow has no CPU kernel, so the CPU runs a loop."""
    x, h = t.uniform(-1, 1, 4, 3, 5), t.uniform(-1, 1, 1, 3, 7)
    params, lengths = t.uniform(-0.7, 0.7, 3 * 7 * (5 + 7 + 2)), tf.constant([4, 2, 3])
    if "CPU" in x.device:
        (weights,) = _recurrent_ops.cudnn_weights("gru", params, 1, 5, 7)
        outputs, _ = _recurrent_ops.loop("gru", x, [h[0]], weights, lengths)
    else:
        outputs = raw.CudnnRNNV3(
            input=x,
            input_h=h,
            input_c=tf.zeros([], t.dtype),
            params=params,
            sequence_lengths=lengths,
            rnn_mode="gru",
        )[0]
    return {"CudnnRNNV3": outputs}


@case("sparse", SINGLE)
def sparse_products(t):
    places = np.argwhere(t.rng.uniform(size=(6, 8)) < 0.4)
    product = raw.SparseTensorDenseMatMul(
        a_indices=t.of(places, tf.int64),
        a_values=t.normal(len(places)),
        a_shape=tf.constant([6, 8], tf.int64),
        b=t.normal(8, 5),
    )
    return {"SparseTensorDenseMatMul": product}


@case("training", SINGLE)
def optimizer_steps(t):
    v, m, s = t.variable(9, 5), t.variable(9, 5), t.variable(9, 5)
    gradient = t.normal(9, 5)
    rates = {"beta1_power": 0.9, "beta2_power": 0.99, "beta1": 0.9, "beta2": 0.99}
    raw.ResourceApplyAdam(
        var=v.handle, m=m.handle, v=s.handle, grad=gradient, lr=0.1, epsilon=1e-3, **rates
    )
    w, momentum = t.variable(33), t.variable(33)
    raw.ResourceApplyMomentum(
        var=w.handle, accum=momentum.handle, lr=0.1, grad=t.normal(33), momentum=0.9
    )
    return {
        "ResourceApplyAdam": [x.read_value() for x in (v, m, s)],
        "ResourceApplyMomentum": [w.read_value(), momentum.read_value()],
    }


@case("variable", ("float32", "float16", "int64"))
def variables(t):
    v = t.variable(9, 5)
    v.assign_add(t.uniform(0, 3, 9, 5))
    v.assign_sub(t.uniform(0, 3, 9, 5))
    return {"AssignAddVariableOp": v.read_value()}


@case("variant", exact=True)
def lists(t):
    x = t.normal(4, 5)
    items = raw.TensorListFromTensor(tensor=x, element_shape=[5])
    got = raw.TensorListGetItem(
        input_handle=items, index=2, element_shape=[5], element_dtype=t.dtype
    )
    stacked = raw.TensorListStack(
        input_handle=items, element_shape=[5], element_dtype=t.dtype, num_elements=4
    )
    return {"TensorListGetItem": got, "TensorListStack": stacked}
