"""TensorLists and optionals on the device: gradients of loops, conditionals and recurrent layers, errors, memory.

Soft placement is off, so nothing of it may fall back to the CPU.
"""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, on_both, python

raw = tf.raw_ops


def gradient(fn, *arrays, rtol=1e-4, atol=1e-5):
    """Values and gradients of `fn` in every argument, as one function on both devices."""

    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = fn(*tensors)
        return [y, *tape.gradient(y, tensors)]

    return on_both(run, *arrays, rtol=rtol, atol=atol, graph=True)


def normal(rng, *shape):
    return rng.normal(size=shape).astype("float32")


def test_while_loop(rng):
    def fn(x, w):
        def body(i, x):
            return i + 1, tf.tanh(x @ w) + 0.1 * x

        return tf.while_loop(lambda i, _: i < 5, body, [tf.constant(0), x])[1]

    gradient(fn, normal(rng, 3, 4), normal(rng, 4, 4))


def test_while_loop_with_a_length_that_depends_on_data(rng):
    def fn(x):
        return tf.while_loop(lambda x: tf.reduce_sum(x * x) < 100.0, lambda x: (1.5 * x + tf.sin(x),), [x])[0]

    gradient(fn, normal(rng, 4))


def test_nested_while_loops(rng):
    def fn(x, w):
        def inner(j, y):
            return j + 1, tf.sin(y @ w)

        def outer(i, x):
            return i + 1, x + tf.while_loop(lambda j, _: j < i + 1, inner, [tf.constant(0), x])[1]

        return tf.while_loop(lambda i, _: i < 3, outer, [tf.constant(0), x])[1]

    gradient(fn, normal(rng, 2, 3), normal(rng, 3, 3))


def test_three_loops_deep(rng):
    def loop(n, body, x):
        return tf.while_loop(lambda i, _: i < n, lambda i, x: (i + 1, body(x)), [tf.constant(0), x])[1]

    def fn(x):
        return loop(2, lambda x: loop(3, lambda x: loop(2, lambda x: tf.sin(x) * 1.3, x) + x, x), x)

    gradient(fn, normal(rng, 5))


def test_second_order(rng):
    def fn(x):
        def loop(x):
            return tf.while_loop(
                lambda i, _: i < 4, lambda i, x: (i + 1, tf.sin(x) + x * x * 0.1), [tf.constant(0), x]
            )[1]

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loop(x)
        return tape.gradient(y, x)

    gradient(fn, normal(rng, 3))


def test_a_loop_with_a_condition_inside(rng):
    def fn(x):
        def body(i, x):
            return i + 1, tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) - 0.5, lambda: x * x + 0.1)

        return tf.while_loop(lambda i, _: i < 6, body, [tf.constant(0), x])[1]

    gradient(fn, normal(rng, 3))


def conditional(x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x) * x, lambda: x * x * x)


CONDITIONALS = {
    "conditional": conditional,
    "within a conditional": lambda x: tf.cond(
        x[0] > 0, lambda: conditional(x) * x, lambda: conditional(-x) + tf.exp(x)
    ),
    "within a loop": lambda x: tf.while_loop(
        lambda i, _: i < 3, lambda i, x: (i + 1, conditional(x) * 0.9), [tf.constant(0), x]
    )[1],
}


@pytest.mark.parametrize(
    ("name", "order"),
    [("conditional", 1), ("conditional", 2), ("conditional", 3), ("within a conditional", 1), ("within a loop", 2)],
)
def test_derivatives_of_conditionals(rng, name, order):
    """Branches keep what their gradients need in optionals; second derivatives make zeros and sums of those."""

    def derivative(fn, n):
        def run(x):
            if n == 0:
                return fn(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = derivative(fn, n - 1)(x)
            return tape.gradient(y, x)

        return run

    x = rng.uniform(0.2, 1.5, 3).astype("float32")
    for sign in (1, -1):
        with tf.device(CPU):
            want = tf.function(derivative(CONDITIONALS[name], order))(tf.constant(sign * x)).numpy()
        with tf.device(WGPU):
            got = tf.function(derivative(CONDITIONALS[name], order))(tf.constant(sign * x)).numpy()
        assert_close(got, want, 1e-4, 1e-4)


def test_a_dataset_in_a_function():
    """A loop over a dataset asks an optional whether there is a next element, of any type."""
    data = (np.array(["a", "bb", "c"]), np.arange(3, dtype="int32"), np.arange(6, dtype="float32").reshape(3, 2))
    dataset = tf.data.Dataset.from_tensor_slices((*data, np.array([True, False, True])))

    @tf.function
    def run(iterator):
        total, count, text = tf.zeros(2), tf.constant(0), tf.constant("")
        for word, number, row, flag in iterator:
            total += tf.sin(row) + tf.cast(flag, tf.float32)
            count += number
            text += word
        return total, count, text

    tf.config.set_soft_device_placement(True)  # strings are for the CPU
    try:
        total, count, text = run(iter(dataset))
    finally:
        tf.config.set_soft_device_placement(False)
    assert_close(total.numpy(), np.sin(data[2]).sum(axis=0) + np.float32(2))
    assert (int(count), text.numpy()) == (3, b"abbc")


def test_a_loop_over_bools(rng):
    def fn(x):
        def body(i, x, flip):
            return i + 1, tf.where(flip, tf.sin(x), x * 1.5), tf.logical_not(flip) & (x < 3)

        start = [tf.constant(0), x, x > 0]
        return tf.while_loop(lambda i, *_: i < 5, body, start)[1]

    gradient(fn, normal(rng, 7))


def test_map_fn(rng):
    def fn(x, w):
        return tf.map_fn(lambda row: tf.tanh(tf.linalg.matvec(w, row)), x)

    gradient(fn, normal(rng, 5, 3), normal(rng, 3, 3))


def test_map_fn_of_map_fn(rng):
    def fn(x):
        return tf.map_fn(lambda rows: tf.map_fn(lambda row: tf.sin(row) * tf.reduce_sum(row), rows), x)

    gradient(fn, normal(rng, 3, 2, 4))


def test_map_fn_to_bool(rng):
    def fn(x):
        return tf.map_fn(lambda row: row > tf.reduce_mean(row), x, fn_output_signature=tf.bool)

    on_both(fn, normal(rng, 5, 3))


def test_map_fn_over_complex(rng):
    x = (normal(rng, 4, 3) + 1j * normal(rng, 4, 3)).astype("complex64")
    on_both(lambda x: tf.map_fn(lambda row: tf.reverse(row, [0]), x), x)


def test_scan(rng):
    def fn(x, w):
        return tf.scan(lambda state, row: tf.tanh(tf.linalg.matvec(w, state) + row), x, initializer=tf.zeros(3))

    gradient(fn, normal(rng, 6, 3), normal(rng, 3, 3))


@pytest.mark.parametrize("function", [tf.foldl, tf.foldr])
def test_fold(rng, function):
    gradient(lambda x: function(lambda a, row: tf.sin(a) + a * row, x), normal(rng, 4, 3))


def test_tensor_array(rng):
    def fn(x):
        array = tf.TensorArray(tf.float32, size=4, element_shape=[3], clear_after_read=False)
        array = array.unstack(x)
        total = array.read(0) * array.read(3)
        array = array.write(1, total)
        split = tf.TensorArray(tf.float32, size=2, infer_shape=False).split(tf.reshape(x, [-1]), [5, 7])
        return array.stack(), array.gather([3, 1]), split.concat(), split.read(1)

    def summed(x):
        return tf.add_n([tf.reduce_sum(tf.sin(y)) for y in fn(x)])

    x = normal(rng, 4, 3)
    on_both(fn, x)
    gradient(summed, x)


def test_an_array_that_grows(rng):
    def fn(x):
        def body(i, array):
            return i + 1, array.write(i, x[i] * tf.cast(i, tf.float32))

        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[3])
        return tf.while_loop(lambda i, _: i < 4, body, [tf.constant(0), array])[1].stack()

    gradient(fn, normal(rng, 4, 3))


def test_an_array_with_elements_that_were_never_written(rng):
    def fn(x):
        array = tf.TensorArray(tf.float32, size=5, element_shape=[3])
        array = array.write(1, x[0]).write(3, tf.sin(x[1]))
        return array.stack()

    gradient(fn, normal(rng, 2, 3))


def test_autograph(rng):
    def fn(x):
        rows = tf.TensorArray(tf.float32, size=x.shape[0])
        state = tf.zeros(3)
        for i in tf.range(x.shape[0]):
            if tf.reduce_sum(x[i]) > 0:
                state = tf.tanh(state + x[i])
            rows = rows.write(i, state * 2.0)
        return rows.stack()

    gradient(fn, normal(rng, 5, 3))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_of_indexed_loops_add_lists(rng, dtype):
    """A list that several reads and the loop's exit share gets its gradient by AddN."""

    def fn(x):
        array = tf.TensorArray(x.dtype, size=4, clear_after_read=False).unstack(x)

        def body(i, total):
            return i + 1, total + array.read(i) * array.read(3 - i)

        total = tf.while_loop(lambda i, _: i < 4, body, [tf.constant(0), tf.zeros_like(x[0])])[1]
        return total + array.read(2)

    tolerance = 1e-2 if dtype == "float16" else 1e-4
    gradient(fn, rng.uniform(-1, 1, (4, 3)).astype(dtype), rtol=tolerance, atol=tolerance)


LAYERS = {
    "LSTM": lambda: keras.layers.LSTM(5, return_sequences=True),
    "LSTM last state": lambda: keras.layers.LSTM(5, return_state=True),
    "LSTM backwards": lambda: keras.layers.LSTM(5, go_backwards=True, recurrent_activation="hard_sigmoid"),
    "GRU": lambda: keras.layers.GRU(5, return_sequences=True),
    "GRU before": lambda: keras.layers.GRU(5, reset_after=False),
    "SimpleRNN": lambda: keras.layers.SimpleRNN(5, return_sequences=True),
    "Bidirectional": lambda: keras.layers.Bidirectional(keras.layers.LSTM(4, return_sequences=True)),
    "Bidirectional GRU": lambda: keras.layers.Bidirectional(keras.layers.GRU(4), merge_mode="sum"),
    "stacked cells": lambda: keras.layers.RNN([keras.layers.LSTMCell(4), keras.layers.GRUCell(3)]),
    "TimeDistributed": lambda: keras.layers.TimeDistributed(keras.layers.Dense(3, activation="tanh")),
}


def layer_gradients(device, build, x, mask):
    """Output and gradients of a layer with fixed weights, from one function without XLA."""
    keras.utils.set_random_seed(7)
    with tf.device(CPU):
        layer = build()
        layer.build(x.shape)
        weights = layer.get_weights()
    with tf.device(device):
        keras.utils.set_random_seed(7)
        layer = build()
        layer.build(x.shape)
        layer.set_weights(weights)

        @tf.function
        def step(x, mask):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x) if mask is None else layer(x, mask=mask)
                loss = tf.add_n([tf.reduce_sum(tf.sin(v)) for v in tf.nest.flatten(y)])
            return y, tape.gradient(loss, [x, *layer.trainable_variables])

        results = step(tf.constant(x), None if mask is None else tf.constant(mask))
    return [r.numpy() for r in tf.nest.flatten(results)]


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers(rng, name, masked):
    x = normal(rng, 3, 6, 4)
    mask = np.arange(6)[None] < np.array([[6], [3], [1]]) if masked else None
    want = layer_gradients(CPU, LAYERS[name], x, mask)
    got = layer_gradients(WGPU, LAYERS[name], x, mask)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert_close(g, w, 1e-4, 1e-4)


def test_convolutional_lstm(rng):
    x = normal(rng, 2, 3, 5, 5, 2)

    def build():
        return keras.layers.ConvLSTM2D(3, 3, padding="same", return_sequences=True)

    for g, w in zip(layer_gradients(WGPU, build, x, None), layer_gradients(CPU, build, x, None)):
        assert_close(g, w, 1e-4, 1e-4)


def test_training_with_dropout_and_masking(rng):
    x = rng.integers(0, 20, (32, 7)).astype("int64")
    y = (x.sum(axis=1) % 2).astype("float32")
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.layers.Input((7,), dtype="int64"),
            keras.layers.Embedding(20, 8, mask_zero=True),
            keras.layers.Bidirectional(keras.layers.LSTM(6, dropout=0.2, recurrent_dropout=0.2, return_sequences=True)),
            keras.layers.GRU(6),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), keras.losses.BinaryCrossentropy(from_logits=True))
    losses = model.fit(x, y, batch_size=16, epochs=20, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
    assert losses[-1] < 0.9 * losses[0], losses


def test_ragged_tensors_through_map_fn():
    def fn(values):
        ragged = tf.RaggedTensor.from_row_lengths(values, tf.constant([2, 0, 3], tf.int64))
        return tf.map_fn(tf.reduce_sum, ragged, fn_output_signature=tf.float32)

    on_both(fn, np.arange(5, dtype="float32"), graph=True)


def pushed(rows, shape):
    handle = raw.EmptyTensorList(
        element_shape=tf.constant(shape, tf.int32), max_num_elements=tf.constant(-1), element_dtype=rows.dtype
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
    "bools": (lambda: [pushed(tf.constant([[True]]), [1])] * 2, "Trying to add unsupported dtype 10"),
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
        with pytest.raises(tf.errors.InvalidArgumentError, match="Trying to access element 1 in a list with 1 element"):
            raw.TensorListGetItem(input_handle=bools, index=index, element_shape=shape, element_dtype=tf.bool)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid data types; op elements"):
            raw.TensorListStack(input_handle=bools, element_shape=shape, element_dtype=tf.complex64)
        empty = raw.TensorListReserve(element_shape=shape, num_elements=tf.constant(0), element_dtype=tf.bool)
        with pytest.raises(tf.errors.InvalidArgumentError, match="Trying to pop from an empty list"):
            raw.TensorListPopBack(input_handle=empty, element_shape=shape, element_dtype=tf.bool)


@pytest.mark.parametrize("device", [CPU, WGPU])
def test_errors_of_optionals(device):
    with tf.device(device):
        one, none = raw.OptionalFromValue(components=[tf.constant([1.0])]), raw.OptionalNone()
        two = raw.OptionalFromValue(components=[tf.constant([1.0]), tf.constant([2.0])])
        with pytest.raises(tf.errors.InvalidArgumentError, match="one has a value and the other doesn't"):
            raw.AddN(inputs=[one, none])
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"different numbers of components \(1 vs. 2\)"):
            raw.AddN(inputs=[one, two])
        with pytest.raises(tf.errors.InternalError, match=r"TensorList.*Optional|Optional.*TensorList"):
            raw.AddN(inputs=[one, pushed(tf.ones((1, 3)), [3])])
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not have a value"):
            raw.OptionalGetValue(optional=none, output_types=[tf.float32], output_shapes=[[1]])


def test_values_of_other_types_are_refused():
    with tf.device(CPU):
        ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])._to_variant()
    with tf.device(WGPU):
        with pytest.raises(tf.errors.InternalError, match="ZEROS_LIKE Variant type_name: RaggedTensorVariant"):
            raw.ZerosLike(x=ragged)
        with pytest.raises(tf.errors.InternalError, match="ADD Variant type_name: RaggedTensorVariant"):
            raw.AddN(inputs=[ragged, ragged])


def test_sums_and_zeros_leave_their_inputs_alone(rng):
    x = normal(rng, 3, 4)
    with tf.device(WGPU):
        a, b = pushed(tf.constant(x), [4]), pushed(tf.constant(2 * x), [4])
        raw.AddN(inputs=[a, b, a])
        raw.ZerosLike(x=a)
        for handle, want in ((a, x), (b, 2 * x)):
            got = raw.TensorListStack(input_handle=handle, element_shape=tf.constant([4]), element_dtype=tf.float32)
            assert_close(got.numpy(), want)


MEMORY = """
    import json, resource
    import numpy as np
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    raw = tf.raw_ops

    def pushed(rows, shape, dtype):
        handle = raw.EmptyTensorList(
            element_shape=tf.constant(shape, tf.int32), max_num_elements=tf.constant(-1), element_dtype=dtype
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
        nested, inner = raw.TensorListPopBack(input_handle=nested, element_shape=shape, element_dtype=tf.variant)
        some = raw.OptionalFromValue(components=[rows[0], total])
        raw.AddN(inputs=[some, raw.ZerosLike(x=some), some])
        bools = pushed(flags, [4096], tf.bool)
        flags = raw.TensorListStack(input_handle=bools, element_shape=tf.constant([4096]), element_dtype=tf.bool)
        try:
            raw.AddN(inputs=[total, pushed(rows[1:], [4096], tf.float32)])
        except tf.errors.InvalidArgumentError:
            pass
        stacked = raw.TensorListStack(input_handle=inner, element_shape=tf.constant([4096]), element_dtype=tf.float32)
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
    """Every iteration makes lists, sums, zeros, nested ones and errors: a reference too many keeps device memory."""
    run = python(MEMORY)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.split("RESULT")[1])
    device, host = found["device"], found["host"]
    assert max(device[-100:]) == max(device[20:100]), device
    # One leaked list of 4 rows of 16 KiB per iteration would be 6 MiB on the device; on the host, leaked objects of
    # 200 bytes could hide in the noise, leaked buffers cannot.
    assert max(host[-20:]) - max(host[60:80]) < 3 << 20, [h >> 10 for h in host[::10]]
