"""The op that updates many variables in place, and the passes that emit it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import CPU, WGPU
from tensorflow.python.eager import context, execute

OP = "_WgpuFusedUpdate"
DESCENT = (
    "x: float32, float32, float32; c: 1; s0 = Mul<float32>(x1, x2); s1 = Mul<float32>(s0, c0); "
    "s2 = Sub<float32>(x0, s1); return s2"
)


def update(expression, variables, tensors, scalars, constants, members):
    """Runs the op eagerly."""
    attrs = (
        *("N", members, "NR", len(variables)),
        *("Ttensors", [t.dtype.as_datatype_enum for t in tensors]),
        *("Tscalars", [t.dtype.as_datatype_enum for t in scalars]),
        *("expression", expression, "constants", constants),
    )
    inputs = [v.handle for v in variables] + list(tensors) + list(scalars)
    execute.execute(OP, 0, inputs, attrs, context.context())


def test_variables_of_several_shapes_change_in_place():
    with tf.device(WGPU):
        variables = [tf.Variable(np.full(shape, 3, "float32")) for shape in ([2, 3], [], [1000])]
        gradients = [
            tf.constant(np.arange(v.shape.num_elements(), dtype="float32").reshape(v.shape))
            for v in variables
        ]
        kept = variables[0].read_value()
        update(DESCENT, variables, gradients, [tf.constant(0.5)], [0.25], 3)
    for v, g in zip(variables, gradients):
        np.testing.assert_array_equal(v.numpy(), 3 - g.numpy() / 8)
    # A value that was read before does not change.
    np.testing.assert_array_equal(kept.numpy(), np.full([2, 3], 3, "float32"))


def test_errors_are_those_of_the_plain_ops():
    with tf.device(WGPU):
        v, scalar = tf.Variable([1.0, 2.0]), tf.constant(1.0)
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=rf"{OP}.*shape \[2\] using a Tensor with shape \[3\]",
        ):
            update(DESCENT, [v], [tf.ones([3])], [scalar], [1.0], 1)
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="never_assigned")
        with pytest.raises(tf.errors.FailedPreconditionError):
            update(DESCENT, [SimpleNamespace(handle=handle)], [tf.ones([2])], [scalar], [1.0], 1)
    np.testing.assert_array_equal(v.numpy(), [1.0, 2.0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64"])
def test_a_variable_behind_two_handles_takes_both_updates(dtype):
    @tf.function(experimental_attributes={"_noinline": True}, autograph=False)
    def both(first, second, x):
        tf.raw_ops.AssignSubVariableOp(resource=first, value=x)
        tf.raw_ops.AssignSubVariableOp(resource=second, value=x)
        tf.raw_ops.AssignAddVariableOp(resource=first, value=x * x)
        return tf.zeros([])

    for shape in ([], [0], [3], [5, 7]):
        with tf.device(WGPU):
            one, two = tf.Variable(tf.zeros(shape, dtype)), tf.Variable(tf.ones(shape, dtype))
            kept, x = one.read_value(), tf.fill(shape, tf.constant(3, dtype))
            both(one.handle, one.handle, x)
            np.testing.assert_array_equal(one.numpy(), np.full(shape, 3, dtype))
            tf.function(lambda handle, x: both(handle, handle, x))(one.handle, x)
            np.testing.assert_array_equal(one.numpy(), np.full(shape, 6, dtype))
            both(one.handle, two.handle, x)
        np.testing.assert_array_equal(one.numpy(), np.full(shape, 12, dtype))
        np.testing.assert_array_equal(two.numpy(), np.full(shape, -2, dtype))
        np.testing.assert_array_equal(kept.numpy(), np.zeros(shape, dtype))


def test_rows_whose_accumulator_is_the_variable_are_what_the_cpu_has():
    def run(device):
        with tf.device(device):
            v = tf.Variable([1.0, -2.0, 3.0])
            scalar = {"lr": tf.constant(0.5), "momentum": tf.constant(0.25)}
            tf.raw_ops.ResourceSparseApplyKerasMomentum(
                **{"var": v.handle, "accum": v.handle, "grad": tf.constant([8.0])},
                indices=tf.constant([1], tf.int64),
                **scalar,
            )
        return v.numpy()

    np.testing.assert_allclose(run(WGPU), run(CPU), rtol=1e-6)


def test_what_the_optimizer_never_emits_is_refused_at_once():
    def chain(n):
        steps = "".join(f"s{k} = Lgamma<float32>(s{k - 1}); " for k in range(1, n))
        return f"x: float32; c: 0; s0 = Lgamma<float32>(x0); {steps}return s{n - 1}"

    with tf.device(WGPU):
        v = tf.Variable([1.0, 2.0])
        for expression, constants in (
            (chain(3000), []),
            (chain(100_000), []),
            ("x: float32; c: 20000; return x0", [0.5] * 20_000),
        ):
            start = time.monotonic()
            with pytest.raises(tf.errors.InvalidArgumentError, match=OP):
                update(expression, [v], [], [], constants, 1)
            attrs = ("T_in", [1], "T_out", [1], "expression", expression, "constants", constants)
            with pytest.raises(tf.errors.InvalidArgumentError, match="_WgpuFusedElementwise"):
                execute.execute(
                    "_WgpuFusedElementwise", 1, [v.read_value()], attrs, context.context()
                )
            assert time.monotonic() - start < 20
    np.testing.assert_array_equal(v.numpy(), [1.0, 2.0])


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(1e-2),
    "adam_clipped": lambda: keras.optimizers.Adam(1e-2, global_clipnorm=0.5),
    "adam_averaged": lambda: keras.optimizers.Adam(1e-2, use_ema=True, ema_momentum=0.5),
    "adamw": lambda: keras.optimizers.AdamW(1e-2),
    "amsgrad": lambda: keras.optimizers.Adam(1e-2, amsgrad=True),
    "sgd": lambda: keras.optimizers.SGD(1e-2),
    "momentum": lambda: keras.optimizers.SGD(1e-2, momentum=0.9),
    "nesterov": lambda: keras.optimizers.SGD(1e-2, momentum=0.9, nesterov=True),
    "rmsprop": lambda: keras.optimizers.RMSprop(1e-2, momentum=0.9, centered=True),
    "adagrad": lambda: keras.optimizers.Adagrad(1e-2),
}


def model():
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(5, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(4, activation="tanh"),
            keras.layers.Dense(3),
        ]
    )


def trained(device, optimizer, steps=3, restored=None, nested=True):
    """Variables of a model and its optimizer after some steps, and the nodes of a step on WGPU."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(16, 8)).astype("float32")
    y = rng.normal(size=(16, 3)).astype("float32")
    with tf.device(device):
        net = model()
        net.compile(optimizer(), "mse", jit_compile=False)
        net.optimizer.build(net.trainable_variables)
        if restored:
            for variable, value in zip(net.variables + net.optimizer.variables, restored):
                variable.assign(value)
        step = tf.function(lambda x, y: net.train_step((x, y)))
        if nested:
            # As in Keras's `fit`: a function that is called within another is not bound to the
            # names of its nodes.
            inner = step
            step = tf.function(lambda x, y: inner(x, y))
        data = tf.constant(x), tf.constant(y)
        # Graphs are collected when they are made.
        _, nodes = optimized(step, *data)
        for _ in range(steps - 1):
            step(*data)
        return [v.numpy() for v in net.variables + net.optimizer.variables], ops(nodes)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_what_the_cpu_does(name):
    want, _ = trained(CPU, OPTIMIZERS[name])
    got, nodes = trained(WGPU, OPTIMIZERS[name])
    assert nodes[OP] >= 1, nodes
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-4)


def test_a_training_loop_of_ones_own_is_what_the_cpu_does():
    want, _ = trained(CPU, OPTIMIZERS["adamw"])
    got, nodes = trained(WGPU, OPTIMIZERS["adamw"], nested=False)
    assert nodes[OP] >= 1, nodes
    assert nodes["AssignSubVariableOp"] == 0, nodes
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=2e-3, atol=2e-4)


def test_a_scaled_loss_skips_steps_that_overflow():
    """The optimizer's step is a branch, and the variables' handles pass through it."""

    def run(device):
        with tf.device(device):
            optimizer = keras.optimizers.LossScaleOptimizer(
                keras.optimizers.Adam(1e-2), dynamic_growth_steps=2
            )
            variables = [keras.Variable(np.ones(shape, "float32")) for shape in ([3], [2, 2], [])]
            optimizer.build(variables)

            @tf.function
            def inner(scale):
                optimizer.apply([v.value * scale for v in variables], variables)

            step = tf.function(lambda scale: inner(scale))
            _, nodes = optimized(step, tf.constant(64.0))
            for scale in (32.0, np.inf, 16.0):
                step(tf.constant(scale, tf.float32))
            return [v.numpy() for v in variables + optimizer.variables], ops(nodes)

    want, _ = run(CPU)
    got, nodes = run(WGPU)
    assert nodes[OP] >= 1, nodes
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-6)


def test_training_goes_on_from_a_saved_state():
    whole, _ = trained(WGPU, OPTIMIZERS["adam"], steps=4)
    half, _ = trained(WGPU, OPTIMIZERS["adam"], steps=2)
    rest, _ = trained(WGPU, OPTIMIZERS["adam"], steps=2, restored=half)
    for g, w in zip(rest, whole, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
