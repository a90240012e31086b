"""Regions that read and change variables: bits, errors, memory and order as without regions."""

from __future__ import annotations

import gc
import threading
from collections import Counter

import graphs
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from regions import REGION, compare, training
from support import WGPU, python

NODE = "named_read"


def floats(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype("float32"))


def mlp():
    hidden = [layers.Dense(16, activation="relu") for _ in range(3)]
    return keras.Sequential([*hidden, layers.Dense(10)])


def test_a_training_step_is_one_region(monkeypatch):
    monkeypatch.setenv("TF_WGPU_CAPTURE", "on")
    with tf.device(WGPU):
        _, bodies = graphs.ran(training(mlp, (4, 8))())
    ops = sum(map(graphs.ops, bodies), Counter())
    assert ops[REGION] == 1
    assert not {"ReadVariableOp", "_WgpuFusedUpdate", "MatMul", "_WgpuFusedMatMul"} & set(ops), ops


def moved(variable):
    """A function that moves a variable by some products of its value."""

    @tf.function
    def function():
        x = variable.read_value()
        for _ in range(3):
            x = tf.matmul(x, x) / 8.0
        variable.assign_sub(x)
        return tf.reduce_sum(x)

    return function


def test_values_that_are_held_stay(monkeypatch):
    """A change is in place only if nothing else refers to the value."""

    def make():
        variable = tf.Variable(floats(4, 4))
        function = moved(variable)

        def steps():
            held = [variable.read_value()]
            for _ in range(6):
                function()
                held.append(variable.read_value())
            return [tf.constant(value.numpy()) for value in held]

        return steps

    compare(monkeypatch, make)


def test_a_value_that_is_returned_stays(monkeypatch):
    def make():
        variable = tf.Variable(floats(4, 4))

        @tf.function
        def function():
            before = variable.read_value()
            x = tf.tanh(tf.matmul(before, before))
            variable.assign_add(tf.matmul(x, x))
            return before, x

        def steps():
            held = [t for _ in range(6) for t in function()]
            return [tf.constant(value.numpy()) for value in held]

        return steps

    compare(monkeypatch, make)


def test_reads_see_changes_before_them(monkeypatch):
    def make():
        variable = tf.Variable(floats(4, 4))

        @tf.function
        def function():
            seen = []
            for _ in range(3):
                x = variable.read_value()
                x = tf.tanh(tf.matmul(tf.matmul(x, x), x))
                variable.assign_add(x)
                seen.append(x)
            return [*seen, variable.read_value()]

        return lambda: [tf.constant(t.numpy()) for _ in range(5) for t in function()]

    compare(monkeypatch, make)


def test_a_variable_whose_shape_changes(monkeypatch):
    def make():
        variable = tf.Variable(floats(3, 3), shape=tf.TensorShape([None, None]))
        function = moved(variable)

        def steps():
            results = []
            for n in [3, 3, 3, 5, 5, 5, 3, 3, 1, 1, 5]:
                if variable.shape != (n, n):
                    variable.assign(floats(n, n, seed=n))
                results += [tf.constant(function().numpy()), tf.constant(variable.numpy())]
            return results

        return steps

    compare(monkeypatch, make)


def test_updates_of_no_rows(monkeypatch):
    """A scatter whose indices are empty in some calls, as in metrics of episodes that end."""

    def make():
        variable = tf.Variable(tf.zeros([5]))

        @tf.function
        def step(x, indices):
            y = x * 2.0 + 1.0
            z = y - tf.exp(x)
            variable.scatter_update(tf.IndexedSlices(y, indices))
            variable.scatter_nd_add(indices[:, None], z)
            return tf.reduce_sum(z)

        counts = (0, 2, 0, 0, 3, 0, 0)
        return lambda: [step(floats(n, seed=n), tf.range(n)) for n in counts] + [variable.value()]

    compare(monkeypatch, make)


def test_one_variable_by_two_handles(monkeypatch):
    def make():
        one, two = (tf.Variable(floats(4, 4, seed=seed)) for seed in range(2))

        @tf.function
        def function(a, b):
            x = tf.matmul(tf.tanh(a.read_value()), b.read_value())
            y = tf.matmul(x, x) / 8.0
            with tf.control_dependencies([y]):
                a.assign_add(y)
            with tf.control_dependencies([a.read_value()]):
                b.assign_sub(tf.matmul(y, x))
            return x, y

        calls = [(one, two), (one, one), (two, one), (two, two)] * 3
        return lambda: [
            *[tf.constant(t.numpy()) for a, b in calls for t in function(a, b)],
            *[tf.constant(v.numpy()) for v in (one, two)],
        ]

    compare(monkeypatch, make)


def test_gradients_of_functions_and_their_updates(monkeypatch):
    """The forward function and the backward function of a tape outside run apart."""

    def make():
        variable = tf.Variable(floats(4, 4))

        @tf.function
        def loss(x):
            for _ in range(3):
                x = tf.tanh(tf.matmul(x, variable))
            return tf.reduce_sum(x)

        def steps():
            losses = []
            for _ in range(5):
                with tf.GradientTape() as tape:
                    value = loss(floats(4, 4, seed=3))
                variable.assign_sub(tape.gradient(value, variable))
                losses.append(tf.constant(value.numpy()))
            return [*losses, tf.constant(variable.numpy())]

        return steps

    compare(monkeypatch, make)


@pytest.mark.parametrize("setting", ["off", "on"])
def test_a_deleted_variable_is_named(monkeypatch, setting):
    monkeypatch.setenv("TF_WGPU_CAPTURE", setting)
    with tf.device(WGPU):
        name = f"deleted_{setting}"
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4, 4], shared_name=name)
        tf.raw_ops.AssignVariableOp(resource=handle, value=floats(4, 4))

        @tf.function
        def function(handle):
            x = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name=NODE)
            for _ in range(3):
                x = tf.matmul(x, x)
            return tf.reduce_sum(x)

        for _ in range(3):
            function(handle).numpy()
        tf.raw_ops.DestroyResourceOp(resource=handle)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Could not find variable") as e:
            function(handle)
    assert NODE in str(e.value)


def test_two_threads_change_one_variable(monkeypatch):
    monkeypatch.setenv("TF_WGPU_CAPTURE", "on")
    with tf.device(WGPU):
        total, other = tf.Variable(tf.zeros([4, 4])), tf.Variable(floats(4, 4))

        @tf.function
        def function():
            x = tf.sign(tf.abs(tf.matmul(other, other)))
            total.assign_add(tf.matmul(x, x))

        function()

        def run():
            with tf.device(WGPU):
                for _ in range(50):
                    function()

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(total.numpy(), np.full([4, 4], 404.0))


def test_full_memory_fails_at_the_node_and_later_replays_are_right() -> None:
    done = python(
        """
        import tensorflow as tf

        def fill(held, shape):
            try:
                while True:
                    held.append(tf.zeros(shape) + 1.0)
                    held[-1][0, 0].numpy()
            except tf.errors.ResourceExhaustedError:
                pass

        with tf.device("WGPU:0"):
            variable = tf.Variable(tf.eye(1024))

            @tf.function
            def function():
                x = variable.read_value()
                for _ in range(3):
                    x = tf.matmul(x, x, name="named_read")
                variable.assign_add(x)
                return x

            for _ in range(5):
                function().numpy()
                variable.assign(tf.eye(1024))
            held = []
            fill(held, [4096, 1024])
            fill(held, [1024, 1024])
            try:
                function()
            except tf.errors.ResourceExhaustedError as error:
                print("named", "named_read" in str(error))
            held.clear()
            print("kept", float(tf.reduce_sum(variable)))
            print("again", float(tf.reduce_sum(function())), float(tf.reduce_sum(variable)))
        """,
        TF_WGPU_MAX_MEMORY="128M",
        TF_WGPU_CAPTURE="on",
    )
    assert done.stdout.splitlines() == ["named True", "kept 1024.0", "again 1024.0 2048.0"], done


@pytest.mark.own_process
def test_the_peak_of_memory_does_not_grow(monkeypatch):
    def peak(setting):
        monkeypatch.setenv("TF_WGPU_CAPTURE", setting)
        with tf.device(WGPU):
            steps = training(mlp, (64, 32))()
            # The graph is made, and runs are recorded.
            steps()
            gc.collect()
            tf.config.experimental.reset_memory_stats("WGPU:0")
            before = tf.config.experimental.get_memory_info("WGPU:0")["current"]
            steps()
            return tf.config.experimental.get_memory_info("WGPU:0")["peak"] - before

    peak("off")
    off, on = peak("off"), peak("on")
    assert on <= off * 1.02, (off, on)
