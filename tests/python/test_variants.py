"""TensorLists on the device: gradients of loops, conditionals and recurrent layers.

Soft placement is off, so nothing may fall back to the CPU.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, normal, on_both

raw = tf.raw_ops


def gradient(fn, *arrays, rtol=1e-4, atol=1e-5):
    """Values and gradients of `fn` with respect to every argument, as one function on both
    devices.
    """

    def run(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            y = fn(*tensors)
        return [y, *tape.gradient(y, tensors)]

    return on_both(run, *arrays, rtol=rtol, atol=atol, graph=True)


def test_while_loop(rng):
    def fn(x, w):
        def body(i, x):
            return i + 1, tf.tanh(x @ w) + 0.1 * x

        return tf.while_loop(lambda i, _: i < 5, body, [tf.constant(0), x])[1]

    gradient(fn, normal(rng, "float32", 3, 4), normal(rng, "float32", 4, 4))


def test_while_loop_with_a_length_that_depends_on_data(rng):
    def fn(x):
        return tf.while_loop(
            lambda x: tf.reduce_sum(x * x) < 100.0, lambda x: (1.5 * x + tf.sin(x),), [x]
        )[0]

    gradient(fn, normal(rng, "float32", 4))


def test_nested_while_loops(rng):
    def fn(x, w):
        def inner(j, y):
            return j + 1, tf.sin(y @ w)

        def outer(i, x):
            return i + 1, x + tf.while_loop(lambda j, _: j < i + 1, inner, [tf.constant(0), x])[1]

        return tf.while_loop(lambda i, _: i < 3, outer, [tf.constant(0), x])[1]

    gradient(fn, normal(rng, "float32", 2, 3), normal(rng, "float32", 3, 3))


def test_three_loops_deep(rng):
    def loop(n, body, x):
        return tf.while_loop(
            lambda i, _: i < n, lambda i, x: (i + 1, body(x)), [tf.constant(0), x]
        )[1]

    def fn(x):
        return loop(2, lambda x: loop(3, lambda x: loop(2, lambda x: tf.sin(x) * 1.3, x) + x, x), x)

    gradient(fn, normal(rng, "float32", 5))


def test_second_order(rng):
    def fn(x):
        def loop(x):
            return tf.while_loop(
                lambda i, _: i < 4,
                lambda i, x: (i + 1, tf.sin(x) + x * x * 0.1),
                [tf.constant(0), x],
            )[1]

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loop(x)
        return tape.gradient(y, x)

    gradient(fn, normal(rng, "float32", 3))


def test_a_loop_with_a_condition_inside(rng):
    def fn(x):
        def body(i, x):
            return i + 1, tf.cond(
                tf.reduce_sum(x) > 0, lambda: tf.sin(x) - 0.5, lambda: x * x + 0.1
            )

        return tf.while_loop(lambda i, _: i < 6, body, [tf.constant(0), x])[1]

    gradient(fn, normal(rng, "float32", 3))


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
    [
        ("conditional", 1),
        ("conditional", 2),
        ("conditional", 3),
        ("within a conditional", 1),
        ("within a loop", 2),
    ],
)
def test_derivatives_of_conditionals(rng, name, order):
    """Branches keep the values for their gradients in optionals; second derivatives make zeros and
    sums of optionals.
    """

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
    data = (
        np.array(["a", "bb", "c"]),
        np.arange(3, dtype="int32"),
        np.arange(6, dtype="float32").reshape(3, 2),
    )
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

    gradient(fn, normal(rng, "float32", 7))


def test_map_fn(rng):
    def fn(x, w):
        return tf.map_fn(lambda row: tf.tanh(tf.linalg.matvec(w, row)), x)

    gradient(fn, normal(rng, "float32", 5, 3), normal(rng, "float32", 3, 3))


def test_map_fn_of_map_fn(rng):
    def fn(x):
        return tf.map_fn(
            lambda rows: tf.map_fn(lambda row: tf.sin(row) * tf.reduce_sum(row), rows), x
        )

    gradient(fn, normal(rng, "float32", 3, 2, 4))


def test_map_fn_to_bool(rng):
    def fn(x):
        return tf.map_fn(lambda row: row > tf.reduce_mean(row), x, fn_output_signature=tf.bool)

    on_both(fn, normal(rng, "float32", 5, 3))


def test_map_fn_over_complex(rng):
    x = (normal(rng, "float32", 4, 3) + 1j * normal(rng, "float32", 4, 3)).astype("complex64")
    on_both(lambda x: tf.map_fn(lambda row: tf.reverse(row, [0]), x), x)


def test_scan(rng):
    def fn(x, w):
        return tf.scan(
            lambda state, row: tf.tanh(tf.linalg.matvec(w, state) + row), x, initializer=tf.zeros(3)
        )

    gradient(fn, normal(rng, "float32", 6, 3), normal(rng, "float32", 3, 3))


@pytest.mark.parametrize("function", [tf.foldl, tf.foldr])
def test_fold(rng, function):
    gradient(
        lambda x: function(lambda a, row: tf.sin(a) + a * row, x), normal(rng, "float32", 4, 3)
    )


def test_tensor_array(rng):
    def fn(x):
        array = tf.TensorArray(tf.float32, size=4, element_shape=[3], clear_after_read=False)
        array = array.unstack(x)
        total = array.read(0) * array.read(3)
        array = array.write(1, total)
        split = tf.TensorArray(tf.float32, size=2, infer_shape=False).split(
            tf.reshape(x, [-1]), [5, 7]
        )
        return array.stack(), array.gather([3, 1]), split.concat(), split.read(1)

    def summed(x):
        return tf.add_n([tf.reduce_sum(tf.sin(y)) for y in fn(x)])

    x = normal(rng, "float32", 4, 3)
    on_both(fn, x)
    gradient(summed, x)


def test_an_array_that_grows(rng):
    def fn(x):
        def body(i, array):
            return i + 1, array.write(i, x[i] * tf.cast(i, tf.float32))

        array = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[3])
        return tf.while_loop(lambda i, _: i < 4, body, [tf.constant(0), array])[1].stack()

    gradient(fn, normal(rng, "float32", 4, 3))


def test_an_array_with_elements_that_were_never_written(rng):
    def fn(x):
        array = tf.TensorArray(tf.float32, size=5, element_shape=[3])
        array = array.write(1, x[0]).write(3, tf.sin(x[1]))
        return array.stack()

    gradient(fn, normal(rng, "float32", 2, 3))


def test_autograph(rng):
    def fn(x):
        rows = tf.TensorArray(tf.float32, size=x.shape[0])
        state = tf.zeros(3)
        for i in tf.range(x.shape[0]):
            if tf.reduce_sum(x[i]) > 0:
                state = tf.tanh(state + x[i])
            rows = rows.write(i, state * 2.0)
        return rows.stack()

    gradient(fn, normal(rng, "float32", 5, 3))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_of_indexed_loops_add_lists(rng, dtype):
    """A list that is shared by several reads and the loop's exit gets its gradient by AddN."""

    def fn(x):
        array = tf.TensorArray(x.dtype, size=4, clear_after_read=False).unstack(x)

        def body(i, total):
            return i + 1, total + array.read(i) * array.read(3 - i)

        total = tf.while_loop(lambda i, _: i < 4, body, [tf.constant(0), tf.zeros_like(x[0])])[1]
        return total + array.read(2)

    tolerance = 1e-2 if dtype == "float16" else 1e-4
    gradient(fn, rng.uniform(-1, 1, (4, 3)).astype(dtype), rtol=tolerance, atol=tolerance)


#: Layers as loops.
LOOP = {"use_cudnn": False}
LAYERS = {
    "LSTM": lambda: keras.layers.LSTM(5, return_sequences=True, **LOOP),
    "LSTM last state": lambda: keras.layers.LSTM(5, return_state=True, **LOOP),
    "LSTM backwards": lambda: keras.layers.LSTM(
        5, go_backwards=True, recurrent_activation="hard_sigmoid"
    ),
    "GRU": lambda: keras.layers.GRU(5, return_sequences=True, **LOOP),
    "GRU before": lambda: keras.layers.GRU(5, reset_after=False, **LOOP),
    "SimpleRNN": lambda: keras.layers.SimpleRNN(5, return_sequences=True),
    "Bidirectional": lambda: keras.layers.Bidirectional(
        keras.layers.LSTM(4, return_sequences=True, **LOOP)
    ),
    "Bidirectional GRU": lambda: keras.layers.Bidirectional(
        keras.layers.GRU(4, **LOOP), merge_mode="sum"
    ),
    "stacked cells": lambda: keras.layers.RNN([keras.layers.LSTMCell(4), keras.layers.GRUCell(3)]),
    "TimeDistributed": lambda: keras.layers.TimeDistributed(
        keras.layers.Dense(3, activation="tanh")
    ),
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers(rng, name, masked):
    x = normal(rng, "float32", 3, 6, 4)
    mask = np.arange(6)[None] < np.array([[6], [3], [1]]) if masked else None
    want = layer_gradients(CPU, LAYERS[name], x, mask)
    got = layer_gradients(WGPU, LAYERS[name], x, mask)
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert_close(g, w, 1e-4, 1e-4)


def test_convolutional_lstm(rng):
    x = normal(rng, "float32", 2, 3, 5, 5, 2)

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
            keras.layers.Bidirectional(
                keras.layers.LSTM(6, dropout=0.2, recurrent_dropout=0.2, return_sequences=True)
            ),
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
