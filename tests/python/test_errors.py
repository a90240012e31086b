"""Bad input is an error of TensorFlow's class that names op and shapes; the process and all tensors
continue to work.

Each row runs on the CPU and on WGPU. The class of the exception must be the CPU's, and every shape
that the CPU's message names must be in WGPU's.
"""

import gc
import re
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, python

ops = tf.raw_ops


def f(*shape: int) -> tf.Tensor:
    """A float32 tensor."""
    return tf.constant(np.arange(np.prod(shape), dtype="float32").reshape(shape))


def i(*values: int) -> tf.Tensor:
    """An int32 vector."""
    return tf.constant(values, tf.int32)


def conv(x: tuple, w: tuple, **attrs) -> Callable[[], tf.Tensor]:
    """A Conv2D with strides of 1 unless said otherwise."""
    attrs = {"strides": [1, 1, 1, 1], "padding": "VALID"} | attrs
    return lambda: ops.Conv2D(input=f(*x), filter=f(*w), **attrs)


ROWS: dict[str, tuple[str, Callable]] = {
    "broadcast": ("AddV2", lambda: ops.AddV2(x=f(2, 3), y=f(2, 4))),
    "broadcast_int64": (
        "Mul",
        lambda: ops.Mul(x=tf.cast(f(2, 3), tf.int64), y=tf.cast(f(3, 2), tf.int64)),
    ),
    "compare": ("Less", lambda: ops.Less(x=f(5), y=f(4))),
    "logic": ("LogicalAnd", lambda: ops.LogicalAnd(x=f(5) > 1, y=f(4) > 1)),
    "select": ("SelectV2", lambda: ops.SelectV2(condition=f(3) > 1, t=f(2), e=f(3))),
    "matmul_inner": ("MatMul", lambda: ops.MatMul(a=f(2, 3), b=f(4, 5))),
    "matmul_rank": ("MatMul", lambda: ops.MatMul(a=f(2, 3, 1), b=f(4, 5))),
    "matmul_batch": ("BatchMatMulV2", lambda: ops.BatchMatMulV2(x=f(2, 3, 4), y=f(3, 4, 5))),
    "matmul_batch_inner": ("BatchMatMulV2", lambda: ops.BatchMatMulV2(x=f(2, 3, 4), y=f(2, 5, 4))),
    "bias_length": ("BiasAdd", lambda: ops.BiasAdd(value=f(2, 3), bias=f(4))),
    "bias_rank": ("BiasAdd", lambda: ops.BiasAdd(value=f(2, 3), bias=f(3, 1))),
    "bias_value_rank": ("BiasAdd", lambda: ops.BiasAdd(value=f(3), bias=f(3))),
    "sum_axis": ("Sum", lambda: ops.Sum(input=f(2, 3), axis=i(2))),
    "max_axis": ("Max", lambda: ops.Max(input=f(2, 3), axis=i(-3))),
    "mean_axis_twice": ("Mean", lambda: ops.Mean(input=f(2, 3), axis=i(0, 0))),
    "argmax_axis": ("ArgMax", lambda: ops.ArgMax(input=f(2, 3), dimension=tf.constant(2))),
    "argmax_empty": ("ArgMax", lambda: ops.ArgMax(input=f(2, 0), dimension=tf.constant(1))),
    "gather_nd_of_nothing": (
        "GatherNd",
        lambda: ops.GatherNd(params=f(3, 0), indices=tf.constant([[0], [2]])),
    ),
    "gather_nd_whole_of_nothing": (
        "GatherNd",
        lambda: ops.GatherNd(params=f(0, 3), indices=tf.zeros((2, 0), tf.int32)),
    ),
    "conv_depth": ("Conv2D", conv((1, 5, 5, 3), (2, 2, 2, 4))),
    "conv_rank": ("Conv2D", conv((1, 5, 5), (2, 2, 3, 4))),
    "conv_filter_rank": ("Conv2D", conv((1, 5, 5, 3), (2, 2, 3))),
    "conv_stride": ("Conv2D", conv((1, 5, 5, 3), (2, 2, 3, 4), strides=[1, 0, 1, 1])),
    "conv_batch_stride": ("Conv2D", conv((1, 5, 5, 3), (2, 2, 3, 4), strides=[2, 1, 1, 1])),
    "max_pool_rank": (
        "MaxPool",
        lambda: ops.MaxPool(input=f(2, 3), ksize=[1, 2, 2, 1], strides=[1] * 4, padding="VALID"),
    ),
    "avg_pool_rank": (
        "AvgPool",
        lambda: ops.AvgPool(value=f(2, 3), ksize=[1, 2, 2, 1], strides=[1] * 4, padding="SAME"),
    ),
    "softmax_rank": ("Softmax", lambda: ops.Softmax(logits=f())),
    "cross_entropy": (
        "SoftmaxCrossEntropyWithLogits",
        lambda: ops.SoftmaxCrossEntropyWithLogits(features=f(2, 3), labels=f(2, 4)),
    ),
    "sparse_cross_entropy_rank": (
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda: ops.SparseSoftmaxCrossEntropyWithLogits(
            features=f(2, 3), labels=tf.constant([[1], [2]], tf.int64)
        ),
    ),
    "sparse_cross_entropy_batch": (
        "SparseSoftmaxCrossEntropyWithLogits",
        lambda: ops.SparseSoftmaxCrossEntropyWithLogits(
            features=f(2, 3), labels=tf.constant([1, 2, 0], tf.int64)
        ),
    ),
    "batch_norm_scale": (
        "FusedBatchNormV3",
        lambda: ops.FusedBatchNormV3(
            x=f(1, 2, 2, 3), scale=f(2), offset=f(3), mean=f(0), variance=f(0)
        ),
    ),
    "concat_axis": (
        "ConcatV2",
        lambda: ops.ConcatV2(values=[f(2, 3), f(2, 3)], axis=tf.constant(2)),
    ),
    "concat_extent": (
        "ConcatV2",
        lambda: ops.ConcatV2(values=[f(2, 3), f(3, 4)], axis=tf.constant(0)),
    ),
    "concat_rank": ("ConcatV2", lambda: ops.ConcatV2(values=[f(2, 3), f(2)], axis=tf.constant(0))),
    "pack_shapes": ("Pack", lambda: ops.Pack(values=[f(2), f(3)])),
    "pack_axis": ("Pack", lambda: ops.Pack(values=[f(2), f(2)], axis=3)),
    "unpack_count": ("Unpack", lambda: ops.Unpack(value=f(3, 2), num=2)),
    "split_uneven": ("Split", lambda: ops.Split(axis=tf.constant(0), value=f(5, 2), num_split=2)),
    "split_axis": ("Split", lambda: ops.Split(axis=tf.constant(2), value=f(4, 2), num_split=2)),
    "split_v_sum": (
        "SplitV",
        lambda: ops.SplitV(value=f(5, 2), size_splits=i(2, 2), axis=tf.constant(0), num_split=2),
    ),
    "slice_past_the_end": ("Slice", lambda: ops.Slice(input=f(3, 4), begin=i(1, 0), size=i(3, 4))),
    "slice_rank": ("Slice", lambda: ops.Slice(input=f(3, 4), begin=i(1), size=i(1))),
    "strided_slice_zero": (
        "StridedSlice",
        lambda: ops.StridedSlice(input=f(3, 4), begin=i(0), end=i(2), strides=i(0)),
    ),
    "strided_slice_index": (
        "StridedSlice",
        lambda: ops.StridedSlice(
            input=f(3, 4), begin=i(5), end=i(6), strides=i(1), shrink_axis_mask=1
        ),
    ),
    "tile_length": ("Tile", lambda: ops.Tile(input=f(2, 3), multiples=i(2))),
    "tile_negative": ("Tile", lambda: ops.Tile(input=f(2, 3), multiples=i(2, -1))),
    "broadcast_to": ("BroadcastTo", lambda: ops.BroadcastTo(input=f(2, 3), shape=i(4, 4))),
    "transpose_length": ("Transpose", lambda: ops.Transpose(x=f(2, 3), perm=i(0))),
    "transpose_twice": ("Transpose", lambda: ops.Transpose(x=f(2, 3), perm=i(0, 0))),
    "transpose_range": ("Transpose", lambda: ops.Transpose(x=f(2, 3), perm=i(0, 2))),
    "pad_shape": ("Pad", lambda: ops.Pad(input=f(2, 3), paddings=tf.constant([[1, 1]]))),
    "pad_negative": (
        "Pad",
        lambda: ops.Pad(input=f(2, 3), paddings=tf.constant([[1, -1], [0, 0]])),
    ),
    "gather_axis": (
        "GatherV2",
        lambda: ops.GatherV2(params=f(2, 3), indices=i(0), axis=tf.constant(2)),
    ),
    "fill_negative": ("Fill", lambda: ops.Fill(dims=i(2, -1), value=tf.constant(1.0))),
    "one_hot_axis": (
        "OneHot",
        lambda: ops.OneHot(
            indices=tf.constant([1, 2], tf.int64),
            depth=tf.constant(3),
            on_value=tf.constant(1.0),
            off_value=tf.constant(0.0),
            axis=3,
        ),
    ),
    "range_step": (
        "Range",
        lambda: ops.Range(start=tf.constant(0.0), limit=tf.constant(5.0), delta=tf.constant(0.0)),
    ),
    "reshape": ("Reshape", lambda: ops.Reshape(tensor=f(2, 3), shape=i(4, 2))),
    "cumsum_axis": ("Cumsum", lambda: ops.Cumsum(x=f(2, 3), axis=tf.constant(2))),
    "random_shape": ("RandomUniform", lambda: ops.RandomUniform(shape=i(2, -1), dtype=tf.float32)),
    "random_bounds": (
        "StatelessRandomUniformInt",
        lambda: ops.StatelessRandomUniformInt(shape=i(3), seed=i(1, 2), minval=5, maxval=5),
    ),
    "random_seed": (
        "StatelessRandomNormal",
        lambda: ops.StatelessRandomNormal(shape=i(3), seed=i(1, 2, 3)),
    ),
    "multinomial_rank": (
        "Multinomial",
        lambda: ops.Multinomial(logits=f(3), num_samples=tf.constant(2)),
    ),
}


# In cases in which TensorFlow's CPU (with oneDNN) aborts the process or returns AbortedError, WGPU
# behaves like TensorFlow's GPU.
CPU_MISBEHAVES = {"conv_rank", "softmax_rank"}


def failure(device: str, fn: Callable) -> tf.errors.OpError:
    """What `fn` raises on `device`."""

    def run() -> None:
        with tf.device(device):
            for t in tf.nest.flatten(fn()):
                t.numpy()

    with pytest.raises(tf.errors.OpError) as caught:
        run()
    message = str(caught.value)
    # With soft placement off, these are also InvalidArgumentErrors, but not the op's own.
    assert "device specification" not in message, message
    assert "Cannot assign a device" not in message, message
    return caught.value


def device_works() -> None:
    with tf.device(WGPU):
        np.testing.assert_array_equal(
            (f(2, 3) + 1.0).numpy(), np.arange(1, 7, dtype="float32").reshape(2, 3)
        )


@pytest.mark.parametrize("name", ROWS)
def test_bad_input(name: str) -> None:
    op, fn = ROWS[name]
    got = failure(WGPU, fn)
    want = (
        tf.errors.InvalidArgumentError(None, None, "")
        if name in CPU_MISBEHAVES
        else failure(CPU, fn)
    )
    message = str(got)
    assert type(got) is type(want), (
        f"{type(got).__name__}: {message}\nbut on the CPU {type(want).__name__}: {want}"
    )
    assert op in message
    shapes = {s.replace(" ", "") for s in re.findall(r"\[[\d, ]+\]", str(want))}
    assert shapes <= {s.replace(" ", "") for s in re.findall(r"\[[\d, ]+\]", message)}, (
        f"{message}\nCPU: {want}"
    )
    device_works()


@pytest.mark.parametrize(
    "name", ["broadcast", "matmul_inner", "conv_depth", "concat_extent", "random_bounds"]
)
def test_bad_input_in_a_graph(name: str) -> None:
    """With shapes that are known only when it runs."""
    x, y = {
        "broadcast": (f(2, 3), f(2, 4)),
        "matmul_inner": (f(2, 3), f(4, 5)),
        "conv_depth": (f(1, 5, 5, 3), f(2, 2, 2, 4)),
        "concat_extent": (f(2, 3), f(3, 4)),
        "random_bounds": (f(3), f(3)),
    }[name]
    body = {
        "broadcast": lambda a, b: a + b,
        "matmul_inner": tf.matmul,
        "conv_depth": lambda a, b: tf.nn.conv2d(
            tf.ensure_shape(a, [None] * 4), tf.ensure_shape(b, [None] * 4), 1, "SAME"
        ),
        "concat_extent": lambda a, b: tf.concat([a, b], 0),
        "random_bounds": lambda a, b: tf.random.stateless_uniform(
            tf.shape(a), (1, 2), tf.size(a), tf.size(b), dtype=tf.int32
        ),
    }[name]
    fn = tf.function(body, input_signature=[tf.TensorSpec(None, tf.float32)] * 2)
    want, got = failure(CPU, lambda: fn(x, y)), failure(WGPU, lambda: fn(x, y))
    assert type(got) is type(want), f"{got}\nCPU: {want}"
    device_works()


def test_an_index_out_of_range_reads_zero_as_on_other_gpus() -> None:
    """TensorFlow's CPU raises; its GPU kernels, which cannot, give 0. So does WGPU, and the
    neighbours are right.
    """
    with tf.device(WGPU):
        got = tf.gather(f(3, 2), tf.constant([2, 7, 0], tf.int64)).numpy()
    np.testing.assert_array_equal(got, [[4, 5], [0, 0], [0, 1]])
    device_works()


def test_too_large_an_allocation_leaves_everything_else_alone() -> None:
    with tf.device(WGPU):
        kept = tf.Variable(f(1000)) * 2.0
        for _ in range(3):
            with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
                tf.zeros([1 << 20, 1 << 20])
            assert "1048576" in str(caught.value)
        np.testing.assert_array_equal(kept.numpy(), 2 * np.arange(1000, dtype="float32"))
    device_works()


def test_too_large_an_allocation_in_a_graph() -> None:
    @tf.function
    def fn(n):
        return tf.reduce_sum(tf.fill([n, n], 1.0))

    with tf.device(WGPU):
        with pytest.raises(tf.errors.ResourceExhaustedError):
            fn(tf.constant(1 << 20))
        assert fn(tf.constant(1 << 10)).numpy() == 1 << 20
    device_works()


def test_errors_do_not_leak_memory() -> None:
    def used() -> int:
        gc.collect()  # exceptions hold their tensors by cycles
        return tf.config.experimental.get_memory_info("WGPU:0")["current"]

    bad = [ROWS[n][1] for n in ("matmul_inner", "conv_depth", "random_bounds", "broadcast")]
    for fn in bad:
        failure(WGPU, fn)
    before = used()
    for _ in range(50):
        for fn in bad:
            failure(WGPU, fn)
    assert used() == before


def test_an_error_at_the_end_of_a_process_is_no_crash() -> None:
    done = python(
        """
        import tensorflow as tf
        with tf.device("WGPU:0"):
            a = tf.ones([64, 64])
            try:
                tf.matmul(a, tf.ones([3, 3]))
            except tf.errors.InvalidArgumentError:
                b = a + a  # in flight when the process ends
                print("REACHED")
        """
    )
    assert done.returncode == 0, done.stderr
    assert "REACHED" in done.stdout


def test_exhausted_memory_names_the_largest_tensors() -> None:
    done = python(
        """
        import numpy as np
        import tensorflow as tf
        with tf.device("WGPU:0"):
            kept = tf.fill([1 << 25], 3.0)
            doubled = kept * 2.0
            loaded = tf.Variable(np.ones([1 << 24], "float32"))
            try:
                more = [tf.fill([1 << 25], float(i)) for i in range(40)]
            except tf.errors.ResourceExhaustedError as error:
                print(error)
            print("later", float(tf.reduce_max(doubled)))
        """,
        TF_WGPU_MAX_MEMORY="1G",
    )
    assert "the largest tensors in its memory: 134.2 MB float32[33554432] of" in done.stdout
    assert "in 1 of Mul; 67.1 MB in 1 of copies from the host" in done.stdout
    assert "A smaller batch helps" in done.stdout
    assert "later 6.0" in done.stdout, done


def test_an_error_of_a_fused_op_names_the_program_s_ops_first() -> None:
    """Its layer is in the node's name. A fused op fails because of a batch that was unknown when
    the graph was optimized.
    """

    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([4, 2])])
    def layer(x, kernel):
        with tf.name_scope("my_layer"):
            # This size exceeds every device.
            wide = tf.reshape(tf.nn.relu(tf.matmul(x, kernel) + 1.0), [-1, 1, 1])
            return tf.tanh(wide * tf.ones([1 << 20]) * 2.0 + 1.0)

    with tf.device(WGPU):
        assert layer(tf.ones([1, 4]), tf.ones([4, 2])).shape == [2, 1, 1 << 20]
        with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
            layer(tf.ones([1 << 14, 4]), tf.ones([4, 2]))
    message = caught.value.message
    assert "\nMul, AddV2, Tanh: out of memory for a float32 tensor of shape" in message
    assert "(node my_layer/Tanh" in message
    assert "inputs float32[32768,1,1], float32[1048576]; fused into _WgpuFused" in message
