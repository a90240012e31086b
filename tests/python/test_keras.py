"""Keras on WGPU, as users write it: default compile, fit, evaluate, predict and eager calls agree
with the CPU.

Soft placement is on here, as for users: Keras's input pipeline and some initializers run on the CPU
by design. TensorFlow's record of their graphs shows where the models' own steps run.
"""

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, float_ops, python

layers = keras.layers


@pytest.fixture(autouse=True)
def soft_placement():
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


# Name, input shape, and the layers before the last Dense.
MODELS: dict[str, tuple[tuple[int, ...], Callable[[], list]]] = {
    "dense": (
        (12,),
        lambda: [layers.Dense(16, activation="relu"), layers.Dense(8, activation="gelu")],
    ),
    "cnn": (
        (12, 12, 3),
        lambda: [
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, strides=2, padding="same"),
            layers.GlobalAveragePooling2D(),
        ],
    ),
    "grouped": (
        (8, 8, 4),
        lambda: [
            layers.Conv2D(8, 3, groups=2, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
        ],
    ),
    "depthwise": (
        (8, 8, 4),
        lambda: [
            layers.DepthwiseConv2D(3, padding="same"),
            layers.Conv2D(6, 1),
            layers.GlobalAveragePooling2D(),
        ],
    ),
    "separable": (
        (8, 8, 4),
        lambda: [layers.SeparableConv2D(6, 3, activation="relu"), layers.GlobalAveragePooling2D()],
    ),
    "lstm": ((7, 5), lambda: [layers.LSTM(6)]),
    "gru": ((7, 5), lambda: [layers.GRU(6)]),
    "bidirectional": (
        (5, 4),
        lambda: [layers.Bidirectional(layers.LSTM(3, return_sequences=True)), layers.Flatten()],
    ),
    "attention": (
        (6, 8),
        lambda: [SelfAttention(), layers.LayerNormalization(), layers.GlobalAveragePooling1D()],
    ),
}


class SelfAttention(layers.Layer):
    """Multi-head attention of a sequence to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads=2, key_dim=4)

    def build(self, shape: tuple) -> None:
        """Builds the attention."""
        self.attention.build(shape, shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Adds the attention to its input."""
        return x + self.attention(x, x)


def build(name: str, device: str) -> keras.Model:
    shape, body = MODELS[name]
    keras.utils.set_random_seed(11)
    with tf.device(device):
        return keras.Sequential(
            [layers.Input(shape), *body(), layers.Dense(3, activation="softmax")]
        )


def data(name: str, count: int = 48) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(count, *MODELS[name][0])).astype("float32")
    return x, rng.integers(0, 3, size=count)


@pytest.mark.parametrize("name", MODELS)
def test_initial_weights_are_those_of_the_cpu(name):
    """Initializers draw the same random numbers on every device."""
    for ours, theirs in zip(build(name, WGPU).get_weights(), build(name, CPU).get_weights()):
        assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_eager_call_and_predict(name):
    """A call outside of any function, and predict's compiled one."""
    x, _ = data(name)
    model, reference = build(name, WGPU), build(name, CPU)
    model.set_weights(reference.get_weights())
    with tf.device(CPU):
        want = reference(x).numpy()
    result = model(x)
    assert "WGPU:0" in result.device
    assert_close(result, want, rtol=1e-4, atol=1e-5)
    assert_close(model.predict(x, batch_size=20, verbose=0), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_fit_and_evaluate(name):
    """Three epochs of training follow the CPU's path."""
    x, y = data(name)
    weights = build(name, CPU).get_weights()

    def train(device: str) -> tuple[list[float], list[float]]:
        model = build(name, device)
        model.set_weights(weights)
        with tf.device(device):
            model.compile(
                keras.optimizers.SGD(0.1, momentum=0.9),
                "sparse_categorical_crossentropy",
                metrics=["accuracy"],
            )
            assert not model.jit_compile
            losses = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0).history[
                "loss"
            ]
            return losses, model.evaluate(x, y, batch_size=20, verbose=0)

    losses, evaluated = train(WGPU)
    cpu_losses, cpu_evaluated = train(CPU)
    np.testing.assert_allclose(losses, cpu_losses, rtol=2e-3)
    np.testing.assert_allclose(evaluated[0], cpu_evaluated[0], rtol=2e-3)


@pytest.mark.parametrize("name", MODELS)
def test_every_float_op_runs_where_the_model_is(name):
    """In training and in prediction."""
    x, y = data(name, count=8)
    for device in (WGPU, CPU):
        model = build(name, device)
        with tf.device(device):
            model.compile("adam", "sparse_categorical_crossentropy")
            trained = float_ops(lambda: model.train_on_batch(x, y))  # noqa: B023, called at once
            predicted = float_ops(lambda: model.predict_on_batch(x))  # noqa: B023
        for ops in (trained, predicted):
            assert ops.pop(device.removeprefix("/device:")).total() > 0
            assert not ops


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"])
def test_optimizers(optimizer):
    """Every step of an optimizer is the CPU's."""
    x, y = data("dense")
    weights = build("dense", CPU).get_weights()

    def train(device: str) -> list[np.ndarray]:
        model = build("dense", device)
        model.set_weights(weights)
        with tf.device(device):
            model.compile(
                getattr(keras.optimizers, optimizer)(0.01), "sparse_categorical_crossentropy"
            )
            model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
        return model.get_weights()

    for ours, theirs in zip(train(WGPU), train(CPU)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=2e-3)


def test_dropout_drops_the_share_it_should():
    keras.utils.set_random_seed(3)
    dropped = layers.Dropout(0.25)(np.ones((100, 200), "float32"), training=True)
    assert "WGPU:0" in dropped.device
    values = dropped.numpy()
    assert 0.23 < (values == 0).mean() < 0.27
    np.testing.assert_allclose(values[values != 0], 1 / 0.75, rtol=1e-6)


def test_embedding_trains():
    keras.utils.set_random_seed(3)
    tokens = np.random.default_rng(0).integers(0, 20, size=(64, 6))
    labels = (tokens == 7).any(axis=1).astype("float32")
    model = keras.Sequential(
        [layers.Embedding(20, 4), layers.GlobalMaxPooling1D(), layers.Dense(1, "sigmoid")]
    )
    model.compile(keras.optimizers.Adam(0.05), "binary_crossentropy")
    losses = model.fit(tokens, labels, batch_size=16, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0], losses


@pytest.mark.parametrize(("data_format", "groups"), [("channels_first", 1), ("channels_last", 2)])
def test_3d_convolutions_that_keras_compiles_with_xla(rng, data_format, groups):
    """On WGPU if it has the op, otherwise with XLA on the CPU; in a call and in a function."""
    channels_last = data_format == "channels_last"
    x = rng.normal(size=(1, 4, 5, 6, 4) if channels_last else (1, 4, 4, 5, 6)).astype("float32")
    kernel = rng.normal(size=(2, 2, 2, 4 // groups, 6)).astype("float32")
    with tf.device(CPU):
        want = keras.ops.conv(x, kernel, data_format=data_format).numpy()
    assert_close(keras.ops.conv(x, kernel, data_format=data_format), want, rtol=1e-4, atol=1e-4)
    traced = tf.function(lambda x: keras.ops.conv(x, kernel, data_format=data_format))
    assert_close(traced(x), want, rtol=1e-4, atol=1e-4)


def test_explicit_jit_is_allowed_on_the_cpu():
    x, y = data("dense")
    model = build("dense", CPU)
    with tf.device(CPU):
        model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
        assert model.jit_compile
        model.fit(x, y, epochs=1, verbose=0)


def test_a_model_that_was_saved_with_jit_loads_without(tmp_path):
    with tf.device(CPU):
        model = build("dense", CPU)
        model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
        model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not loaded.jit_compile
    x, y = data("dense")
    loaded.fit(x, y, epochs=1, verbose=0)


@pytest.mark.parametrize("first", ["keras", "tensorflow", "keras.src.backend.tensorflow.nn"])
def test_the_hooks_hold_whatever_is_imported_first(first):
    ran = python(
        f"""
        import {first}
        import keras
        layers = [keras.layers.Input((4, 4, 4)), keras.layers.Conv2D(4, 3, groups=2)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        assert not model.jit_compile
        model(keras.ops.ones((1, 4, 4, 4)))
        try:
            model.compile("sgd", "mse", jit_compile=True)
        except ValueError:
            print("refused")
        """,
        TF_WGPU_JIT="error",
    )
    assert ran.stdout.strip() == "refused", ran.stderr[-4000:]


def test_a_hidden_device_leaves_keras_alone():
    ran = python(
        """
        import tensorflow as tf, keras
        assert not tf.config.list_physical_devices("WGPU")
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=True)
        print(model.jit_compile)
        """,
        TF_WGPU_VISIBLE_DEVICES="-1",
    )
    assert ran.stdout.strip() == "True", ran.stderr[-4000:]
