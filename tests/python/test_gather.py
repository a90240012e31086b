"""Gathers, scatters and segments on tensors and on variables, with their gradients."""

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, on_both


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int32", "int64", "bool", "complex64"]
)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_gathers(rng, dtype, index):
    x = tf.cast(
        tf.constant(rng.integers(0, 2 if dtype == "bool" else 100, size=(4, 5, 3))), dtype
    ).numpy()
    i = rng.integers(0, 4, size=(4, 2)).astype(index)
    on_both(tf.gather, x, i)
    on_both(lambda x, i: tf.gather(x, i, axis=1), x, i)
    on_both(lambda x, i: tf.gather(x, i, axis=2, batch_dims=1), x, i // 2)
    if dtype != "bool":
        on_both(tf.gather_nd, x, i)


@pytest.mark.parametrize("index", ["uint8", "int32", "int64"])
def test_one_hot(index):
    i = np.array([[0, 2], [5, 1]], index)
    on_both(lambda i: tf.one_hot(i, 4), i)
    on_both(lambda i: tf.one_hot(i, 3, axis=0, on_value=2.5, off_value=-1.0), i)
    on_both(lambda i: tf.one_hot(i, 4, dtype="int64"), i)


def test_bad_indices_give_zeros():
    with tf.device(WGPU):
        x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        assert tf.gather(x, [0, 3, -1]).numpy().tolist() == [[1, 2], [0, 0], [0, 0]]
        assert tf.gather_nd(x, [[2, 1], [0, 2]]).numpy().tolist() == [6, 0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_scatter_nd(rng, dtype):
    i = np.array([[1], [3], [1], [0]], "int32")
    updates = rng.integers(0, 9, size=(4, 3)).astype(dtype)
    on_both(lambda i, u: tf.scatter_nd(i, u, [5, 3]), i, updates)
    if dtype != "float16":
        base = rng.integers(0, 9, size=(5, 3)).astype(dtype)
        on_both(tf.tensor_scatter_nd_add, base, i, updates)
        on_both(tf.tensor_scatter_nd_sub, base, i, updates)
        on_both(tf.tensor_scatter_nd_max, base, i, updates)
        on_both(tf.tensor_scatter_nd_min, base, i, updates)
        on_both(tf.tensor_scatter_nd_update, base, i[:2], updates[:2])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_unsorted_segments(rng, dtype):
    x = rng.integers(1, 5, size=(6, 3)).astype(dtype)
    i = np.array([0, 3, 3, 1, 0, 3], "int32")
    for op in (tf.math.unsorted_segment_sum, tf.math.unsorted_segment_prod):
        on_both(lambda x, i, op=op: op(x, i, 5), x, i)
    for op in (tf.math.unsorted_segment_max, tf.math.unsorted_segment_min):
        on_both(lambda x, i, op=op: op(x, i, 5), x, i)


def test_dynamic_stitch(rng):
    a, b = rng.normal(size=(2, 3)).astype("float32"), rng.normal(size=(3, 3)).astype("float32")
    on_both(lambda a, b: tf.dynamic_stitch([[4, 0], [2, 1, 3]], [a, b]), a, b)


def on_both_variables(initial, change):
    """The value of a variable after `change`, which must agree on both devices, eager and as a
    function.
    """
    results = {}
    for device in (CPU, WGPU):
        for graph in (False, True):
            with tf.device(device):
                variable = tf.Variable(initial)
                (tf.function(change) if graph else change)(variable)
                results[device, graph] = variable.numpy()
    for graph in (False, True):
        assert_close(results[WGPU, graph], results[CPU, graph])


def test_variables_by_rows(rng):
    initial = rng.normal(size=(6, 3)).astype("float32")
    rows = rng.normal(size=(3, 3)).astype("float32")
    slices = lambda: tf.IndexedSlices(tf.constant(rows), tf.constant([4, 1, 4]))  # noqa: E731
    on_both_variables(initial, lambda v: v.scatter_add(slices()))
    on_both_variables(initial, lambda v: v.scatter_sub(slices()))
    on_both_variables(initial, lambda v: v.scatter_mul(slices()))
    on_both_variables(initial, lambda v: v.scatter_div(slices()))
    on_both_variables(initial, lambda v: v.scatter_max(slices()))
    on_both_variables(initial, lambda v: v.scatter_min(slices()))
    on_both_variables(initial, lambda v: v.scatter_update(slices()))
    on_both_variables(initial, lambda v: v.scatter_nd_update([[4], [1]], rows[:2]))
    on_both_variables(initial, lambda v: v.scatter_nd_add([[4, 0], [1, 2], [4, 0]], rows[0]))
    on_both_variables(initial, lambda v: v.scatter_nd_sub([[4], [1], [4]], rows))


def test_gathers_from_variables(rng):
    initial = rng.normal(size=(6, 3)).astype("float32")
    i = np.array([[5, 0], [2, 2]], "int64")
    results = []
    for device in (CPU, WGPU):
        with tf.device(device):
            variable = tf.Variable(initial)
            read = tf.function(lambda v=variable: (tf.gather(v, i), tf.gather_nd(v, i // 2)))
            results.append([tf.gather(variable, i), *read()])
    for want, got in zip(*results):
        assert_close(got.numpy(), want.numpy())


def test_embedding_gradients(rng):
    table = rng.normal(size=(10, 4)).astype("float32")
    ids = np.array([[1, 7, 1], [0, 9, 7]], "int32")
    results = []
    for device in (CPU, WGPU):
        with tf.device(device):
            variable = tf.Variable(table)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(variable, ids)))
            gradient = tape.gradient(loss, variable)
            dense = tf.math.unsorted_segment_sum(gradient.values, gradient.indices, 10)
            variable.scatter_sub(tf.IndexedSlices(0.1 * gradient.values, gradient.indices))
            results.append((dense.numpy(), variable.numpy()))
    assert_close(results[1][0], results[0][0])
    assert_close(results[1][1], results[0][1])


def test_gather_gradients(rng):
    x = rng.normal(size=(4, 5, 3)).astype("float32")
    i = np.array([3, 0, 3], "int32")

    def gradient(x, i, fn):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(fn(x, i) ** 2)
        return tf.convert_to_tensor(tape.gradient(loss, x))

    on_both(lambda x, i: gradient(x, i, tf.gather), x, i)
    on_both(lambda x, i: gradient(x, i, lambda x, i: tf.gather(x, i, axis=1)), x, i)
    on_both(lambda x, i: gradient(x, i, lambda x, i: tf.gather_nd(x, i[:, None])), x, i)


def test_errors_have_tensorflows_class_and_words():
    with tf.device(WGPU):
        variable = tf.Variable(tf.zeros([4, 3]))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"updates\.shape \[2,2\]"):
            tf.raw_ops.ResourceScatterAdd(
                resource=variable.handle, indices=[0, 1], updates=tf.zeros([2, 2])
            )
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"params\.shape"):
            tf.raw_ops.GatherV2(
                params=tf.zeros([2, 3]), indices=[[0], [0], [0]], axis=1, batch_dims=1
            )
