"""Gradients of loops: values from lists have a shape and are fused; shapes and counters stay on the
host.
"""

from __future__ import annotations

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from support import CPU, WGPU, assert_close

#: The ops of a recurrent layer's gradient besides products.
ELEMENTWISE = {"AddN", "Mul", "Neg", "SigmoidGrad", "Sub", "TanhGrad"}


def gradients(layer, signature=None):
    """A function of a batch that returns the layer's result, with the gradients of its weights and
    of the batch.
    """

    @tf.function(input_signature=signature)
    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = tf.reduce_sum(y * y)
        return y, *tape.gradient(loss, [x, *layer.trainable_variables])

    return call


def left_over(nodes):
    """The elementwise ops of float tensors in the gradient's loop that are not fused."""
    names = [n for n in nodes if n.op in ELEMENTWISE and "while" in n.name and "gradient" in n.name]
    return [n.name for n in names if n.attr["T"].type == tf.float32.as_datatype_enum]


def lstm_loop(units, **options):
    """An LSTM as a loop, as on other devices."""
    return keras.layers.LSTM(units, use_cudnn=False, **options)


def gru_loop(units, **options):
    """A GRU as a loop, as on other devices."""
    return keras.layers.GRU(units, use_cudnn=False, **options)


@pytest.mark.parametrize("batch", [3, None])
@pytest.mark.parametrize("kind", [lstm_loop, gru_loop, keras.layers.SimpleRNN])
def test_gradients_of_recurrent_layers_are_fused(rng, kind, batch):
    shape = (9, 8)
    with tf.device(WGPU):
        layer = kind(16, return_sequences=True)
        layer.build((batch, *shape))
    with tf.device(CPU):
        other = kind(16, return_sequences=True)
        other.build((batch, *shape))
        other.set_weights(layer.get_weights())
    signature = [tf.TensorSpec([batch, *shape])]
    call, reference = gradients(layer, signature), gradients(other, signature)
    for count in (3,) if batch else (3, 1, 5):
        x = rng.normal(size=(count, *shape)).astype("float32")
        with tf.device(WGPU):
            got, nodes = graphs.optimized(call, tf.constant(x))
            # There may be one more if a dispatch has no binding left.
            assert len(left_over(nodes)) <= (2 if batch else 3)
            # Without a known batch, TensorFlow's gradients sum tensors that might have been
            # broadcast.
            assert not [
                n.name for n in nodes if n.op == "BroadcastGradientArgs" and "while" in n.name
            ]
        with tf.device(CPU):
            want = reference(tf.constant(x))
        for g, w in zip(got, want, strict=True):
            assert_close(g.numpy(), w.numpy())


@pytest.mark.parametrize("rows", [1, 3])
def test_a_state_that_is_broadcast_in_the_first_step(rng, rows):
    """The state begins as one row and is a batch from then on: the gradient is summed only in the
    first step.
    """

    @tf.function(input_signature=[tf.TensorSpec([3, None, 4]), tf.TensorSpec([None, 4])])
    def call(x, begin):
        with tf.GradientTape() as tape:
            tape.watch([x, begin])
            state = begin
            for step in tf.range(3):
                tf.autograph.experimental.set_loop_options(
                    shape_invariants=[(state, tf.TensorShape([None, 4]))]
                )
                state = tf.tanh(state * 0.7 + x[step])
            loss = tf.reduce_sum(state * state)
        return tape.gradient(loss, [x, begin])

    x, begin = (
        rng.normal(size=(3, rows, 4)).astype("float32"),
        rng.normal(size=(1, 4)).astype("float32"),
    )
    results = []
    for device in (WGPU, CPU):
        with tf.device(device):
            results.append([g.numpy() for g in call(tf.constant(x), tf.constant(begin))])
    for got, want in zip(*results, strict=True):
        assert got.shape == want.shape
        assert_close(got, want)


def test_layers_with_masks_and_in_both_directions(rng):
    """A batch of unknown size, sequences of several lengths."""
    results = []
    x = rng.normal(size=(3, 7, 5)).astype("float32")
    x[1, 4:] = 0
    x[2] = 0
    weights = None
    for device in (CPU, WGPU):
        with tf.device(device):
            inputs = keras.Input((7, 5))
            both = keras.layers.Bidirectional(lstm_loop(6, return_sequences=True))
            y = gru_loop(4)(both(keras.layers.Masking()(inputs)))
            model = keras.Model(inputs, y)
            weights = weights or model.get_weights()
            model.set_weights(weights)
            call = gradients(model, [tf.TensorSpec([None, 7, 5])])
            results.append([g.numpy() for g in call(tf.constant(x))])
    for want, got in zip(*results, strict=True):
        assert_close(got, want)


def test_a_list_of_several_shapes(rng):
    """Each step pushes an element of another shape."""

    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for _ in tf.range(3):
                tf.autograph.experimental.set_loop_options(
                    shape_invariants=[(y, tf.TensorShape([None, 4]))]
                )
                y = tf.concat([y, tf.tanh(y)], 0) * 0.5
            loss = tf.reduce_sum(tf.sin(y))
        return tape.gradient(loss, x)

    x = rng.normal(size=(2, 4)).astype("float32")
    results = []
    for device in (WGPU, CPU):
        with tf.device(device):
            results.append(tf.function(call)(tf.constant(x)).numpy())
    assert_close(*results)


def test_branches_within_a_loop(rng):
    """A loop whose steps keep different values."""

    def call(x, steps):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for i in tf.range(steps):
                mean = tf.reduce_mean(y, 0, keepdims=True)
                y = tf.cond(
                    i % 2 == 0,
                    lambda y=y: tf.tanh(y) * x,
                    lambda y=y, mean=mean: tf.sigmoid(y) + mean,
                )
            loss = tf.reduce_sum(y * y)
        return tape.gradient(loss, x)

    x = rng.normal(size=(2, 4)).astype("float32")
    for steps in (0, 1, 4):
        results = []
        for device in (WGPU, CPU):
            with tf.device(device):
                results.append(tf.function(call)(tf.constant(x), tf.constant(steps)).numpy())
        assert np.isfinite(results[0]).all()
        assert_close(*results)


def read_backs(call):
    """The number of read-backs while `call` runs, which reads nothing itself."""
    before = tensorflow_wgpu.statistics()["WGPU:0"]["downloads"]
    call()
    return tensorflow_wgpu.statistics()["WGPU:0"]["downloads"] - before


@pytest.mark.parametrize("batch", [3, None])
@pytest.mark.parametrize("kind", [lstm_loop, gru_loop])
def test_the_gradient_of_a_recurrent_layer_waits_for_no_step(rng, kind, batch):
    steps = 20
    with tf.device(WGPU):
        layer = kind(7, return_sequences=True)
        layer.build((batch, steps, 5))
        call = gradients(layer, [tf.TensorSpec([batch, steps, 5])])
        x = tf.constant(rng.normal(size=(3, steps, 5)).astype("float32"))
        _, nodes = graphs.optimized(call, x)
        assert {"_WgpuHostStack", "_WgpuHostStackPush", "_WgpuHostStackPop"} <= graphs.ops(
            nodes
        ).keys()
        assert read_backs(lambda: call(x)) == 0


def pushed_and_popped(pushes, pops, most=-1, element_shape=-1):
    """A function that pushes the shapes of growing tensors in one loop and sums what another loop
    pops.
    """

    def call(x):
        raw = tf.raw_ops
        stack = raw.EmptyTensorList(
            element_shape=element_shape, max_num_elements=most, element_dtype=tf.int32
        )

        def push(i, stack):
            value = tf.shape(tf.zeros([i + 1, 3]))
            return i + 1, raw.TensorListPushBack(input_handle=stack, tensor=value)

        def pop(i, total, stack):
            stack, value = raw.TensorListPopBack(
                input_handle=stack, element_shape=element_shape, element_dtype=tf.int32
            )
            return i + 1, total * 2 + tf.ensure_shape(value, [2]), stack

        stack = tf.while_loop(lambda i, _: i < pushes, push, [0, stack])[1]
        total = tf.while_loop(lambda i, *_: i < pops, pop, [0, tf.zeros([2], tf.int32), stack])[1]
        return x + tf.cast(total, tf.float32)

    return tf.function(call)


@pytest.mark.parametrize(("pushes", "pops"), [(0, 0), (1, 1), (5, 3), (7, 7), (90, 60)])
def test_a_stack_is_last_in_first_out(pushes, pops):
    results = []
    for device in (WGPU, CPU):
        with tf.device(device):
            call = pushed_and_popped(pushes, pops, max(pushes, 7))
            result, nodes = graphs.optimized(call, tf.zeros([2]))
            results.append(result.numpy())
            if device == WGPU:
                assert "_WgpuHostStackPop" in graphs.ops(nodes)
    np.testing.assert_array_equal(*results)


def test_two_loops_pop_what_one_has_pushed():
    """Each loop changes its own stack, though elements are popped in place."""

    def call(x):
        raw = tf.raw_ops
        stack = raw.EmptyTensorList(element_shape=-1, max_num_elements=-1, element_dtype=tf.int32)

        def push(i, stack):
            value = tf.shape(tf.zeros([i + 1, 3]))
            return i + 1, raw.TensorListPushBack(input_handle=stack, tensor=value)

        def pop(i, total, stack):
            stack, value = raw.TensorListPopBack(
                input_handle=stack, element_shape=-1, element_dtype=tf.int32
            )
            return i + 1, total * 2 + tf.ensure_shape(value, [2]), stack

        stack = tf.while_loop(lambda i, _: i < 9, push, [0, stack])[1]
        totals = []
        for pops in (9, 4):
            total = [0, tf.zeros([2], tf.int32), stack]
            totals.append(tf.while_loop(lambda i, *_, n=pops: i < n, pop, total)[1])
        return x + tf.cast(tf.concat(totals, 0), tf.float32)

    results = []
    for device in (WGPU, CPU):
        with tf.device(device):
            result, nodes = graphs.optimized(tf.function(call), tf.zeros([4]))
            results.append(result.numpy())
            if device == WGPU:
                assert "_WgpuHostStackPop" in graphs.ops(nodes)
    np.testing.assert_array_equal(*results)


def test_errors_of_stacks_are_those_of_lists():
    for pushes, pops, most, message in (
        (3, 4, -1, "pop from an empty list"),
        (3, 1, 2, "push item into a full list"),
    ):
        for device in (WGPU, CPU):
            with tf.device(device), pytest.raises(tf.errors.InvalidArgumentError, match=message):
                pushed_and_popped(pushes, pops, most)(tf.zeros([2]))
    with tf.device(WGPU):
        np.testing.assert_array_equal(pushed_and_popped(2, 2)(tf.zeros([2])).numpy(), [5.0, 9.0])


def test_indices_on_the_device_stay_there(rng):
    """The gradient of an embedding needs an int32 tensor, which comes out of a list on the
    device.
    """

    def call(table, ids):
        with tf.GradientTape() as tape:
            tape.watch(table)
            rows = tf.TensorArray(tf.int32, 6, element_shape=[4]).unstack(ids)
            y = tf.zeros([4, 3])
            for i in tf.range(6):
                y = tf.tanh(y + tf.gather(table, rows.read(i)))
            loss = tf.reduce_sum(y * y)
        return tf.convert_to_tensor(tape.gradient(loss, table))

    table, ids = (
        rng.normal(size=(9, 3)).astype("float32"),
        rng.integers(9, size=(6, 4)).astype("int32"),
    )
    results = []
    for device in (WGPU, CPU):
        with tf.device(device):
            result, nodes = graphs.optimized(
                tf.function(call), tf.constant(table), tf.constant(ids)
            )
            results.append(result.numpy())
            pushed = [n.input[1] for n in nodes if n.op == "_WgpuHostStackPush"]
            assert not [name for name in pushed if "GetItem" in name]
    assert_close(*results)
