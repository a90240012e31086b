"""Regions whose run is cut short: another op fails, the step is cancelled, the user stops the
program, or a value comes only after the region's own. Later replays give the right bits.
"""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from regions import compare
from support import WGPU, python
from tensorflow.python.eager import cancellation


def floats(*shape, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype("float32"))


def chain(x):
    """Three matrix products, which no pass fuses with each other."""
    for _ in range(3):
        x = tf.matmul(x, x) / 8.0
    return x


def test_an_op_beside_a_region_fails(monkeypatch):
    """The change waits for the op, so a failed run changes nothing, and later runs are right."""

    def make():
        variable, steps = tf.Variable(floats(4, 4)), tf.Variable(0.0)

        def check(limit):
            if limit < 0:
                raise ValueError("the limit is negative")
            return limit

        @tf.function
        def function(limit):
            x = chain(variable.read_value())
            y = tf.py_function(check, [limit], tf.float32)
            y.set_shape([])
            with tf.control_dependencies([y]):
                variable.assign_sub(chain(x))
                steps.assign_add(1.0)
            return x + y

        def run():
            found = []
            failures = (tf.errors.InvalidArgumentError, tf.errors.UnknownError)
            for limit in [1.0, 2.0, -1.0, 3.0, -1.0, -1.0, 4.0]:
                if limit < 0:
                    with pytest.raises(failures, match="the limit is negative"):
                        function(tf.constant(limit))
                else:
                    found.append(tf.constant(function(tf.constant(limit)).numpy()))
            return [*found, tf.constant(variable.numpy()), tf.constant(steps.numpy())]

        return run

    compare(monkeypatch, make)


def test_a_cancelled_step(monkeypatch):
    """A step that waits for a queue between two regions is cancelled: the first region has changed
    its variable, the second has not, and later steps are right.
    """

    def make():
        with tf.device("CPU:0"):
            queue = tf.queue.FIFOQueue(4, tf.float32, [])
        variable = tf.Variable(floats(4, 4))

        @tf.function
        def function():
            x = chain(variable.read_value())
            variable.assign_sub(x)
            with tf.device("CPU:0"), tf.control_dependencies([x]):
                y = queue.dequeue()
            x = chain(x * y)
            variable.assign_add(chain(x))
            return x

        concrete = function.get_concrete_function()

        def steps():
            found = []
            for k in range(8):
                if k == 5:
                    cancel(concrete)
                else:
                    queue.enqueue(0.5 + k)
                    found.append(tf.constant(concrete().numpy()))
                found.append(tf.constant(variable.numpy()))
            return found

        return steps

    compare(monkeypatch, make, least=2)


def cancel(concrete):
    """Calls a function that waits for ever, and cancels it."""
    manager = cancellation.CancellationManager()
    cancelable = manager.get_cancelable_function(concrete)
    errors = []

    def run():
        with tf.device(WGPU):
            try:
                cancelable()
            except tf.errors.OpError as error:
                errors.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    manager.start_cancel()
    thread.join(60)
    assert not thread.is_alive()
    assert errors == [tf.errors.CancelledError]


def test_a_value_that_waits_for_a_value_of_the_same_step() -> None:
    """A queue gives what the step itself puts in: no region may wait for its own value. Functions
    of TensorFlow 1 have no control edges between the two.
    """
    done = python(
        """
        import tensorflow as tf

        with tf.device("CPU:0"):
            queue = tf.queue.FIFOQueue(4, tf.float32, [[4, 4]])

        def step(x):
            with tf.device("WGPU:0"):
                a = tf.matmul(x, x) * 2.0
                with tf.device("CPU:0"):
                    fill, taken = queue.enqueue(a), queue.dequeue()
                b = tf.matmul(tf.matmul(taken, taken), taken)
                with tf.control_dependencies([fill]):
                    return tf.identity(tf.matmul(a, b))

        function = tf.compat.v1.wrap_function(step, [tf.TensorSpec([4, 4])])
        with tf.device("WGPU:0"):
            for _ in range(3):
                print(float(tf.reduce_sum(function(tf.eye(4)))))
        """,
        TF_WGPU_CAPTURE="on",
        timeout=120,
    )
    assert done.stdout.split() == ["64.0"] * 3, done


def test_the_user_stops_the_program(monkeypatch):
    """Ctrl-C between or within steps: the variables are those after some number of whole steps."""
    monkeypatch.setenv("TF_WGPU_CAPTURE", "on")
    with tf.device(WGPU):
        variable, count = tf.Variable(floats(4, 4)), tf.Variable(0.0)

        @tf.function
        def function():
            x = variable.read_value()
            variable.assign_add(tf.tanh(chain(x)) * 0.01)
            count.assign_add(1.0)
            return x

        def run(most):
            for _ in range(most):
                function()

        start = variable.numpy()
        run(3)
        # A shell starts processes in the background with the signal ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                run(10**6)
        finally:
            signal.signal(signal.SIGINT, before)
        run(3)
        steps, got = int(count.numpy()), variable.numpy()
        variable.assign(start)
        run(steps)
        np.testing.assert_array_equal(variable.numpy(), got)


def test_a_strategy_of_one_device(monkeypatch):
    def make():
        strategy = tf.distribute.OneDeviceStrategy(WGPU)
        with strategy.scope():
            variable = tf.Variable(floats(4, 4))

        @tf.function
        def step(x):
            def replica(x):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_sum(tf.tanh(tf.matmul(chain(tf.matmul(x, variable)), x)))
                variable.assign_sub(0.1 * tape.gradient(loss, variable))
                return loss

            return strategy.reduce("SUM", strategy.run(replica, (x,)), axis=None)

        def steps():
            losses = [tf.constant(step(floats(4, 4, seed=k)).numpy()) for k in range(6)]
            return [*losses, tf.constant(variable.numpy())]

        return steps

    compare(monkeypatch, make)
