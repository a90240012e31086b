"""`jit_compile=True` on WGPU: functions and models run without XLA, with one warning, and keep XLA
on the CPU.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import CPU, WGPU, python

MUST_COMPILE = "_XlaMustCompile"


def asks_for_xla(concrete) -> bool:
    return concrete.function_def.attr[MUST_COMPILE].b


@tf.function(jit_compile=True)
def double(x: tf.Tensor) -> tf.Tensor:
    return x * 2


def test_a_function_runs_alone_and_within_another():
    result = double(tf.ones(3))
    assert result.numpy().tolist() == [2, 2, 2]
    assert "WGPU:0" in result.device
    assert tf.function(lambda x: double(x) + 1)(tf.ones(2)).numpy().tolist() == [3, 3]
    inner = tf.function(lambda x: x + 1)
    assert tf.function(lambda x: inner(x) * 2, jit_compile=True)(tf.ones(2)).numpy().tolist() == [
        4,
        4,
    ]


def test_the_optimizer_takes_xlas_place():
    x = tf.random.normal((64, 64))
    step = tf.function(lambda x: double(tf.tanh(double(x)) + 1.0) - x, jit_compile=True)
    result, nodes = optimized(step, x)
    np.testing.assert_allclose(
        result, 2 * (np.tanh(2 * x.numpy()) + 1) - x.numpy(), rtol=1e-5, atol=1e-5
    )
    ran = ops(nodes)
    assert sum(n for op, n in ran.items() if op.startswith("_WgpuFused")) == 1, ran
    assert not ran["Tanh"]


@pytest.mark.parametrize("first", [CPU, WGPU])
def test_the_cpu_keeps_xla_and_wgpu_goes_without(first):
    function = tf.function(lambda x: tf.sin(x) * 3, jit_compile=True)
    for device in (first, CPU, WGPU, CPU, WGPU):
        with tf.device(device):
            x = tf.ones(2)
            assert device.removeprefix("/device:") in function(x).device
            assert asks_for_xla(function.get_concrete_function(x)) == (device == CPU)
    assert function.experimental_get_tracing_count() == 2


def test_loops_and_gradients():
    """XLA's context would refuse a list without a known length, and keep the loop from being
    lowered.
    """

    @tf.function(jit_compile=True)
    def total(x: tf.Tensor) -> tf.Tensor:
        squares, i = tf.TensorArray(tf.float32, size=0, dynamic_size=True), tf.constant(0)
        while i < tf.shape(x)[0]:
            squares = squares.write(i, x[i] * x[i])
            i += 1
        return tf.reduce_sum(squares.stack() * 2.0)

    v = tf.Variable([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        loss = total(v)
    assert loss.numpy() == 28
    assert tape.gradient(loss, v).numpy().tolist() == [4, 8, 12]


class Affine(tf.Module):
    """A function that asks for XLA, and another one that calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.v = tf.Variable(3.0)

    @tf.function(jit_compile=True, input_signature=[tf.TensorSpec([None])])
    def inner(self, x: tf.Tensor) -> tf.Tensor:
        """Multiplies."""
        return x * self.v

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def outer(self, x: tf.Tensor) -> tf.Tensor:
        """Multiplies and adds."""
        return self.inner(x) + 1


@pytest.mark.parametrize("device", [CPU, WGPU])
def test_a_saved_model(tmp_path, device):
    """A model that was saved on the CPU holds calls that ask for XLA."""
    with tf.device(device):
        module = Affine()
        module.inner(tf.ones(2))
        module.outer(tf.ones(2))
        tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    assert loaded.inner(tf.ones(2)).numpy().tolist() == [3, 3]
    result = loaded.outer(tf.ones(2))
    assert result.numpy().tolist() == [4, 4]
    assert "WGPU:0" in result.device


def test_a_method_and_variables_made_in_a_function():
    class Counter:
        v = None

        @tf.function(jit_compile=True)
        def add(self, x: tf.Tensor) -> tf.Tensor:
            if self.v is None:
                self.v = tf.Variable(1.0)
            return self.v.assign_add(x)

    counter = Counter()
    assert [counter.add(tf.constant(2.0)).numpy() for _ in range(3)] == [3, 5, 7]


def test_ops_of_xlas_own_are_refused_by_name():
    """They would end the process, or run on the CPU without a warning."""
    xla = pytest.importorskip("tensorflow.compiler.tf2xla.python.xla")
    sort = tf.function(xla.sort, autograph=False)
    for function in (xla.sort, lambda x: sort(x) + 1):
        compiled = tf.function(function, jit_compile=True, autograph=False)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"holds XlaSort, which XLA alone can run"
        ):
            compiled(tf.constant([2.0, 1.0]))
        with tf.device(CPU):
            assert (
                sorted(compiled(tf.constant([2.0, 1.0])).numpy().tolist())
                == compiled(tf.constant([2.0, 1.0])).numpy().tolist()
            )


def test_there_is_no_code_of_xlas_to_show():
    with pytest.raises(ValueError, match="No JIT device registered for WGPU"):
        double.experimental_get_compiler_ir(tf.ones(2))()


def test_keras_trains_as_without():
    x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    weights, losses = None, {}
    tf.config.set_soft_device_placement(True)
    try:
        for jit in (True, False):
            model = keras.Sequential(
                [keras.layers.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
            )
            weights = weights or model.get_weights()
            model.set_weights(weights)
            model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit)
            assert model.jit_compile == jit
            losses[jit] = model.fit(
                x, y, batch_size=16, epochs=3, shuffle=False, verbose=0
            ).history["loss"]
            assert "WGPU:0" in model.trainable_variables[0].value.device
    finally:
        tf.config.set_soft_device_placement(False)
    assert losses[True][-1] < losses[True][0]
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-5)


PROGRAM = """
    import numpy as np, tensorflow as tf, keras
    f, g = (tf.function(lambda x: x * 2, jit_compile=True) for _ in range(2))
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    for what in (
        lambda: f(tf.ones(2)), lambda: g(tf.ones(3)),
        lambda: (
            model.compile("sgd", "mse", jit_compile=True),
            model.fit(np.ones((4, 3)), np.ones(4), verbose=0),
        ),
    ):
        try:
            what()
            print("ran")
        except Exception as e:
            print(type(e).__name__, str(e))
"""


def test_one_warning_for_a_process():
    ran = python(PROGRAM)
    assert ran.stdout.split() == ["ran"] * 3, ran.stderr[-4000:]
    said = [
        line for line in ran.stderr.splitlines() if "XLA has no compiler for WGPU devices" in line
    ]
    assert len(said) == 1, ran.stderr
    assert "TF_WGPU_JIT=error" in said[0]


def test_an_error_where_the_environment_asks_for_it():
    ran = python(PROGRAM, TF_WGPU_JIT="error")
    function, other, model = ran.stdout.strip().splitlines()
    for line in (function, other):
        assert line.startswith("InvalidArgumentError"), ran.stdout
        assert (
            "cannot run on WGPU: XLA has no compiler for WGPU devices; leave jit_compile out"
            in line
        )
    assert model.startswith("ValueError jit_compile=True cannot be used with a WGPU device"), (
        ran.stdout
    )


def test_an_unknown_mode_is_named():
    ran = python(PROGRAM, TF_WGPU_JIT="off")
    assert ran.stdout.split() == ["ran"] * 3, ran.stderr[-4000:]
    assert "TF_WGPU_JIT=off is ignored: the only value is error" in ran.stderr
