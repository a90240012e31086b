"""Values of type variant, lists and optionals, themselves: errors of their ops, unchanged values,
memory.

Soft placement is off, so nothing may fall back to the CPU.
"""

import json

import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, python

raw = tf.raw_ops


def pushed(rows, shape):
    handle = raw.EmptyTensorList(
        element_shape=tf.constant(shape, tf.int32),
        max_num_elements=tf.constant(-1),
        element_dtype=rows.dtype,
    )
    for row in tf.unstack(rows):
        handle = raw.TensorListPushBack(input_handle=handle, tensor=row)
    return handle


ERRORS = {
    "lengths": (
        lambda: [pushed(tf.ones((2, 3)), [3]), pushed(tf.ones((1, 3)), [3])],
        "with different lengths. One is 2 and the other is 1",
    ),
    "shapes": (
        lambda: [pushed(tf.ones((1, 3)), [3]), pushed(tf.ones((1, 2)), [2])],
        r"incompatible element shapes. One is \[3\] and the other is \[2\]",
    ),
    "ranks": (
        lambda: [pushed(tf.ones((1, 3)), [-1]), pushed(tf.ones((1, 2, 2)), [2, -1])],
        r"incompatible element shapes. One is \[\?\] and the other is \[2,\?\]",
    ),
    "elements": (
        lambda: [pushed(tf.ones((1, 3)), [-1]), pushed(tf.ones((1, 2)), [2])],
        r"incompatible element shapes. One is \[3\] and the other is \[2\]",
    ),
    "types": (
        lambda: [pushed(tf.ones((1, 3)), [3]), pushed(tf.ones((1, 3), tf.int64), [3])],
        "of different dtypes. One is float and the other is int64",
    ),
    "bools": (
        lambda: [pushed(tf.constant([[True]]), [1])] * 2,
        "Trying to add unsupported dtype 10",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("device", [CPU, WGPU])
def test_errors_of_sums(name, device):
    make, message = ERRORS[name]
    with tf.device(device), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        raw.AddN(inputs=make())


@pytest.mark.parametrize("device", [CPU, WGPU])
def test_errors_of_lists(device):
    with tf.device(device):
        bools = pushed(tf.constant([[True, False]]), [2])
        index = tf.constant(1)
        shape = tf.constant([2], tf.int32)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match="Trying to access element 1 in a list with 1 element",
        ):
            raw.TensorListGetItem(
                input_handle=bools, index=index, element_shape=shape, element_dtype=tf.bool
            )
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid data types; op elements"):
            raw.TensorListStack(input_handle=bools, element_shape=shape, element_dtype=tf.complex64)
        empty = raw.TensorListReserve(
            element_shape=shape, num_elements=tf.constant(0), element_dtype=tf.bool
        )
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="Trying to pop from an empty list"
        ):
            raw.TensorListPopBack(input_handle=empty, element_shape=shape, element_dtype=tf.bool)


@pytest.mark.parametrize("device", [CPU, WGPU])
def test_errors_of_optionals(device):
    with tf.device(device):
        one, none = raw.OptionalFromValue(components=[tf.constant([1.0])]), raw.OptionalNone()
        two = raw.OptionalFromValue(components=[tf.constant([1.0]), tf.constant([2.0])])
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="one has a value and the other doesn't"
        ):
            raw.AddN(inputs=[one, none])
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"different numbers of components \(1 vs. 2\)"
        ):
            raw.AddN(inputs=[one, two])
        with pytest.raises(
            tf.errors.InternalError, match=r"TensorList.*Optional|Optional.*TensorList"
        ):
            raw.AddN(inputs=[one, pushed(tf.ones((1, 3)), [3])])
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not have a value"):
            raw.OptionalGetValue(optional=none, output_types=[tf.float32], output_shapes=[[1]])


def test_values_of_other_types_are_refused():
    with tf.device(CPU):
        ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])._to_variant()
    with tf.device(WGPU):
        with pytest.raises(
            tf.errors.InternalError, match="ZEROS_LIKE Variant type_name: RaggedTensorVariant"
        ):
            raw.ZerosLike(x=ragged)
        with pytest.raises(
            tf.errors.InternalError, match="ADD Variant type_name: RaggedTensorVariant"
        ):
            raw.AddN(inputs=[ragged, ragged])


def test_sums_and_zeros_leave_their_inputs_alone(rng):
    x = rng.normal(size=(3, 4)).astype("float32")
    with tf.device(WGPU):
        a, b = pushed(tf.constant(x), [4]), pushed(tf.constant(2 * x), [4])
        raw.AddN(inputs=[a, b, a])
        raw.ZerosLike(x=a)
        for handle, want in ((a, x), (b, 2 * x)):
            got = raw.TensorListStack(
                input_handle=handle, element_shape=tf.constant([4]), element_dtype=tf.float32
            )
            assert_close(got.numpy(), want)


MEMORY = """
    import json, resource
    import numpy as np
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    raw = tf.raw_ops

    def pushed(rows, shape, dtype):
        handle = raw.EmptyTensorList(
            element_shape=tf.constant(shape, tf.int32),
            max_num_elements=tf.constant(-1),
            element_dtype=dtype,
        )
        for row in rows:
            handle = raw.TensorListPushBack(input_handle=handle, tensor=row)
        return handle

    def lists(x):
        rows = tf.unstack(x)
        flags = [r > 0 for r in rows]
        a, b = pushed(rows, [4096], tf.float32), pushed(rows[::-1], [4096], tf.float32)
        total = raw.AddN(inputs=[a, b, raw.ZerosLike(x=a)])
        nested = pushed([total, b], [], tf.variant)
        nested = raw.AddN(inputs=[nested, raw.ZerosLike(x=nested)])
        shape = tf.constant([], tf.int32)
        nested, inner = raw.TensorListPopBack(
            input_handle=nested, element_shape=shape, element_dtype=tf.variant
        )
        some = raw.OptionalFromValue(components=[rows[0], total])
        raw.AddN(inputs=[some, raw.ZerosLike(x=some), some])
        bools = pushed(flags, [4096], tf.bool)
        extent = tf.constant([4096])
        flags = raw.TensorListStack(
            input_handle=bools, element_shape=extent, element_dtype=tf.bool
        )
        try:
            raw.AddN(inputs=[total, pushed(rows[1:], [4096], tf.float32)])
        except tf.errors.InvalidArgumentError:
            pass
        stacked = raw.TensorListStack(
            input_handle=inner, element_shape=extent, element_dtype=tf.float32
        )
        return float(tf.reduce_sum(tf.where(flags, stacked, 0.0)))

    @tf.function
    def loop(x):
        def inner(j, y):
            return j + 1, tf.sin(y)
        def outer(i, x):
            return i + 1, x + tf.while_loop(lambda j, _: j < 2, inner, [tf.constant(0), x])[1]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.while_loop(lambda i, _: i < 3, outer, [tf.constant(0), x])[1]
        return tape.gradient(y, x)

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    device, host = [], []
    with tf.device("WGPU:0"):
        x = tf.constant(np.random.default_rng(0).normal(size=(4, 4096)).astype("float32"))
        for n in range(200):
            lists(x)
            loop(x).numpy()
            device.append(tf.config.experimental.get_memory_info("WGPU:0")["current"])
            host.append(resident())
    print("RESULT" + json.dumps(dict(device=device, host=host)))
"""


def test_no_memory_is_lost():
    """Every iteration makes lists, sums, zeros, nested lists and errors: one reference too many
    would keep device memory.
    """
    run = python(MEMORY)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.split("RESULT")[1])
    device, host = found["device"], found["host"]
    assert max(device[-100:]) == max(device[20:100]), device
    # One leaked list of 4 rows of 16 KiB per iteration would be 6 MiB on the device; on the host,
    # leaked objects of 200 bytes could hide in the noise, leaked buffers cannot.
    assert max(host[-20:]) - max(host[60:80]) < 3 << 20, [h >> 10 for h in host[::10]]
