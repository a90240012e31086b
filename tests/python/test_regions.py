"""Regions: TF_WGPU_CAPTURE=on and check give the same bits, errors and effects as off."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from keras import layers
from regions import REGION, compare, training
from support import WGPU

NODE = "named_product"


def mlp():
    hidden = [layers.Dense(16, activation="relu") for _ in range(3)]
    return keras.Sequential([*hidden, layers.Dense(10)])


def block():
    x = tokens = keras.Input((8, 16))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, activation="gelu")(x)))
    return keras.Model(tokens, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def convolutions():
    parts = [layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    return keras.Sequential([*parts, layers.GlobalAveragePooling2D(), layers.Dense(10)])


def recurrent():
    return keras.Sequential([layers.LSTM(8), layers.Dense(10)])


def dropped():
    return keras.Sequential([layers.Dense(16), layers.Dropout(0.5, seed=3), layers.Dense(10)])


@pytest.mark.parametrize(
    ("build", "shape"),
    [(mlp, (4, 8)), (block, (2, 8, 16)), (convolutions, (2, 8, 8, 3)), (recurrent, (2, 4, 6))],
)
def test_training_steps_have_the_same_bits(monkeypatch, build, shape):
    compare(monkeypatch, training(build, shape))


@pytest.mark.parametrize(("build", "shape"), [(block, (2, 8, 16)), (convolutions, (2, 8, 8, 3))])
def test_regions_cost_no_dispatches(monkeypatch, build, shape):
    """Without an optimizer, whose update takes more dispatches the more the gradients are apart."""

    def dispatches(setting):
        monkeypatch.setenv("TF_WGPU_CAPTURE", setting)
        with tf.device(WGPU):
            model, x = build(), tf.ones(shape)

            @tf.function
            def gradients():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(model(x, training=True) ** 2)
                return tape.gradient(loss, model.trainable_variables)

            counts = []
            for _ in range(4):
                before = count()
                [gradient.numpy() for gradient in gradients()]
                counts.append(count() - before)
        return min(counts)

    def count():
        return sum(device["dispatches"] for device in tensorflow_wgpu.statistics().values())

    assert dispatches("on") <= dispatches("off")


@pytest.mark.parametrize("optimizer", [keras.optimizers.SGD, keras.optimizers.RMSprop])
def test_other_optimizers(monkeypatch, optimizer):
    compare(monkeypatch, training(mlp, (4, 8), optimizer))


def test_random_ops(monkeypatch):
    compare(monkeypatch, training(dropped, (4, 8)))


def chain(x):
    """Five matrix products, which no pass fuses with each other."""
    for _ in range(5):
        x = tf.matmul(x, x) / 8.0
    return x


def squares(n=4, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=(n, n)).astype("float32"))


def test_shapes_that_change(monkeypatch):
    def make():
        function = tf.function(chain, input_signature=[tf.TensorSpec([None, None])])
        sizes = [*[3, 5, 0, 1] * 4, *range(12), *range(12), 3]
        return lambda: [tf.constant(function(squares(n)).numpy()) for n in sizes]

    compare(monkeypatch, make)


def test_inputs_that_share_memory(monkeypatch):
    def make():
        @tf.function
        def function(a, b, c):
            x = tf.matmul(a, b) / 8.0
            y = tf.matmul(x, c) / 8.0
            return chain(x), y, tf.matmul(y, a)

        def results():
            one, two = squares(seed=1), squares(seed=2)
            calls = [(one, two, one), (one, one, two), (two, two, two), (two, one, squares(seed=3))]
            return [[t.numpy() for t in function(*call)] for call in calls * 3]

        return lambda: [tf.constant(t) for t in tf.nest.flatten(results())]

    compare(monkeypatch, make)


def test_an_input_that_something_else_reads_is_not_overwritten(monkeypatch):
    def make():
        @tf.function
        def function(keeps):
            # The region may overwrite it, for it is no variable's and no argument's.
            x = tf.random.uniform([8, 8], seed=5)
            z = tf.cond(keeps, lambda: tf.cumsum(x), lambda: tf.zeros([8, 8]))
            y = tf.exp(tf.sin(x))
            for _ in range(3):
                y = y + tf.matmul(y, y) / 64.0
            return y, z

        calls = [tf.constant(k % 3 == 0) for k in range(9)]
        return lambda: [tf.constant(t.numpy()) for k in calls for t in function(k)]

    compare(monkeypatch, make)


def test_an_error_names_the_node_of_the_program(monkeypatch):
    @tf.function(input_signature=[tf.TensorSpec(None), tf.TensorSpec(None)])
    def function(x, y):
        return chain(tf.matmul(x, y, name=NODE))

    def said(setting):
        monkeypatch.setenv("TF_WGPU_CAPTURE", setting)
        with tf.device(WGPU), pytest.raises(tf.errors.InvalidArgumentError) as error:
            tf.function(function.python_function, input_signature=function.input_signature)(
                tf.ones([2, 3]), tf.ones([4, 5])
            )
        return str(error.value)

    plain, region = said("off"), said("on")
    assert f"node {NODE}" in region, region
    assert "float32[2,3], float32[4,5]" in region
    assert plain.split("\n")[0].split("[[")[0] == region.split("\n")[0].split("[[")[0]
    assert REGION not in region.split("[[")[0]


def test_a_variable_that_two_names_share(monkeypatch):
    def make():
        variable = tf.Variable(squares())

        @tf.function
        def function(a, b):
            x = chain(a.read_value())
            b.assign_add(x)
            y = chain(a.read_value())
            a.assign_sub(y)
            return x, y, a.read_value()

        return lambda: [function(variable, variable) for _ in range(2)]

    compare(monkeypatch, make, least=2)


def test_two_threads_call_one_function(monkeypatch):
    def make():
        function = tf.function(chain)
        inputs = [squares(8, seed) for seed in range(2)]

        def both():
            results = [function(inputs[0]), None]

            def run(k):
                with tf.device(WGPU):
                    for _ in range(20):
                        results[k] = function(inputs[k])

            threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results

        return both

    compare(monkeypatch, make)


def test_nested_functions_branches_loops_and_gradients(monkeypatch):
    @tf.function
    def inner(x):
        return chain(x) + 1.0

    def make():
        @tf.function
        def function(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = inner(x)
                y = tf.cond(tf.reduce_sum(y) > 0.0, lambda: chain(y), lambda: chain(-y))
                for _ in tf.range(3):
                    y = chain(y)
            return y, tape.gradient(y, x)

        return lambda: function(squares())

    compare(monkeypatch, make)


def test_effects_keep_their_order(monkeypatch, capfd):
    def make():
        @tf.function
        def function(x):
            y = chain(x)
            tf.print("sum", tf.reduce_sum(y))
            tf.debugging.assert_less(tf.reduce_max(tf.abs(x)), 100.0)
            return chain(y)

        return lambda: function(squares())

    compare(monkeypatch, make)
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("sum")]
    assert len(lines) == 3
    assert len(set(lines)) == 1


def test_a_fetched_node_of_a_session_keeps_its_name(monkeypatch):
    def values(setting):
        monkeypatch.setenv("TF_WGPU_CAPTURE", setting)
        with tf.Graph().as_default(), tf.device(WGPU), tf.compat.v1.Session() as session:
            x = tf.compat.v1.placeholder(tf.float32, [4, 4])
            y = tf.matmul(x, x, name=NODE)
            z = chain(y)
            return session.run([z, f"{NODE}:0"], {x: np.eye(4, dtype="float32")})

    for got, want in zip(values("on"), values("off"), strict=True):
        np.testing.assert_array_equal(got, want)


def test_the_profiler_sees_each_kernel_under_its_own_op(monkeypatch):
    monkeypatch.setenv("TF_WGPU_CAPTURE", "on")
    function = tf.function(chain)
    with tf.device(WGPU):
        function(squares())
        with tensorflow_wgpu.profile() as profile:
            function(squares()).numpy()
    text = str(profile)
    assert "MatMul" in text, text
    assert REGION not in text, text
