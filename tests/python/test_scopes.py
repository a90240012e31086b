"""`tf.device` scopes of types that have no device, in programs for other machines: with soft
placement TensorFlow chooses WGPU, and so do all queries for the device.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import DEVICE, WGPU
from tensorflow_wgpu import _placement
from tensorflow_wgpu._library import device_type

OURS = [None, "/WGPU:0", "WGPU:0", "/job:localhost/replica:0/task:0/device:WGPU:0"]
ABSENT = [
    "/GPU:0",
    "/gpu:0",
    "/gpu:1",
    "gpu:0",
    "/device:GPU:0",
    "/TPU:0",
    "/job:localhost/replica:0/task:0/device:GPU:0",
]
CPUS = ["/CPU:0", "/cpu:0", "cpu:0", "/device:CPU:0", "/job:localhost/replica:0/task:0/cpu:0"]

if device_type() == "GPU":
    OURS = [name and name.replace("WGPU", "GPU") for name in OURS]
    ABSENT = ["/TPU:0"]


@pytest.fixture(autouse=True)
def soft_placement():
    """The default of programs."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


@pytest.mark.parametrize("scope", [*OURS, *ABSENT])
def test_what_runs_on_wgpu(scope):
    """Eagerly, in a function that is called there, and in one that has a scope itself."""
    asked = []

    def within(x):
        with tf.device(scope):
            asked.append(_placement.runs_on())
            return x * 2

    with tf.device(scope):
        asked.append(_placement.runs_on())
        x = tf.constant([1.0, 2.0])
        made = [x + 1, tf.Variable(x), tf.function(lambda x: x * 2)(x)]
    made.append(tf.function(within)(x))
    assert all(asked), asked
    assert all(value.device.endswith(DEVICE) for value in made), [v.device for v in made]


@pytest.mark.parametrize("scope", CPUS)
def test_what_runs_on_the_cpu(scope):
    asked = []

    def within(x):
        with tf.device(scope):
            asked.append(_placement.runs_on())
            return x * 2

    with tf.device(scope):
        asked.append(_placement.runs_on())
        x = tf.constant([1.0, 2.0])
        made = [x + 1, tf.Variable(x), tf.function(lambda x: x * 2)(x)]
        with tf.device("/GPU:0" if device_type() == "WGPU" else WGPU):
            asked.append(not _placement.runs_on())
    # Results of a function are on the device of its call.
    tf.function(within)(x)
    assert not any(asked), asked
    assert all(value.device.endswith("CPU:0") for value in made), [v.device for v in made]


def test_scopes_within_scopes():
    """The innermost scope counts; `None` leaves them all."""
    kinds = []

    @tf.function
    def within(x):
        with tf.device("/cpu:0"):
            kinds.append(_placement.scope_device_type())
            with tf.device("/job:localhost"):
                kinds.append(_placement.scope_device_type())
            with tf.device(tf.DeviceSpec(device_type=device_type(), device_index=0)):
                kinds.append(_placement.scope_device_type())
            with tf.device(None):
                kinds.append(_placement.scope_device_type())
            with tf.device("/TPU:0"):
                kinds.append(_placement.scope_device_type())
        return x

    within(tf.ones(1))
    assert kinds == ["CPU", "CPU", device_type(), None, None]
    with tf.Graph().as_default(), tf.compat.v1.device(lambda node: "/cpu:0"):
        # The result of a function of the node is unknown.
        assert _placement.scope_device_type() is None


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(32, 8)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def trained(scope: str | None, jit: str | bool = "auto") -> tuple[list[float], np.ndarray]:
    """Losses and predictions of a model that is built, compiled, trained and used in a scope."""
    x, y = data()
    with tf.device(scope):
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.layers.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit)
        losses = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
        losses = [*losses.history["loss"], model.evaluate(x, y, verbose=0)]
        assert all(DEVICE in v.value.device for v in model.variables)
        return losses, model.predict(x, verbose=0)


@pytest.fixture(scope="module")
def want():
    tf.config.set_soft_device_placement(True)
    return trained(None)


@pytest.mark.parametrize(
    ("scope", "jit"), [*((scope, "auto") for scope in ABSENT), (ABSENT[0], True)]
)
def test_keras_trains_as_without_a_scope(want, scope, jit):
    losses, predictions = trained(scope, jit)
    np.testing.assert_allclose(losses, want[0], rtol=1e-5)
    np.testing.assert_allclose(predictions, want[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scope", ABSENT)
def test_a_function_that_asks_for_xla(scope):
    function = tf.function(lambda x: tf.sin(x) * 3, jit_compile=True)

    @tf.function
    def outer(x):
        with tf.device(scope):
            return function(x)

    with tf.device(scope):
        assert function(tf.ones(2)).device.endswith(DEVICE)
    np.testing.assert_allclose(outer(tf.ones(2)), 3 * np.sin([1, 1]), rtol=1e-5)


def test_a_layer_that_keras_compiles_by_itself():
    """Grouped convolutions."""
    x = tf.random.normal((2, 6, 6, 4))
    layer = keras.layers.Conv2D(4, 3, groups=2)
    want = layer(x)
    with tf.device(ABSENT[0]):
        got = layer(x)
    assert got.device.endswith(DEVICE)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_strategy_of_one_device():
    strategy = tf.distribute.OneDeviceStrategy(ABSENT[0])
    x, y = data()
    with strategy.scope():
        variable = tf.Variable(tf.ones(3))
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    losses = model.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert variable.device.endswith(DEVICE)
    doubled = strategy.run(tf.function(lambda: variable * 2, jit_compile=True))
    assert strategy.experimental_local_results(doubled)[0].numpy().tolist() == [2, 2, 2]


def test_without_soft_placement_tensorflow_refuses_a_type_that_has_no_device():
    tf.config.set_soft_device_placement(False)
    with tf.device(ABSENT[0]), pytest.raises(tf.errors.InvalidArgumentError, match="device"):
        tf.ones(2) + 1.0
