"""Training that keeps fewer activations: `keras.RematScope` and `tf.recompute_grad` compute blocks
again for the gradient, and Keras's accumulation of gradients takes a batch in parts. The numbers
are the CPU's, and the most memory of a step falls.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, DEVICE, WGPU

BLOCKS, WIDTH, ROWS = 6, 64, 2048
NAMES = [f"block_{i}" for i in range(BLOCKS)]
#: The bytes of the hidden activations of one block.
HIDDEN = ROWS * 4 * WIDTH * 4


class Block(keras.layers.Layer):
    """A feed-forward block, whose hidden layer is the largest of its activations."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = keras.layers.LayerNormalization()
        self.up = keras.layers.Dense(4 * WIDTH, activation="gelu")
        self.down = keras.layers.Dense(WIDTH)

    def build(self, shape):
        """Builds the layers for inputs of a shape."""
        self.norm.build(shape)
        self.up.build(shape)
        self.down.build((*shape[:-1], 4 * WIDTH))

    def call(self, x):
        """The result of the block."""
        return x + self.down(self.up(self.norm(x)))


def scope(mode: str | None) -> keras.RematScope:
    """A scope that recomputes by blocks, or all layers whose results are large."""
    return keras.RematScope(mode, output_size_threshold=WIDTH - 1, layer_names=NAMES)


def model_of(mode: str | None) -> keras.Model:
    """A model with the same weights each time."""
    keras.utils.set_random_seed(1)
    with scope(mode):
        blocks = [Block(name=name) for name in NAMES]
    x = inputs = keras.Input((WIDTH,))
    for block in blocks:
        x = block(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def data(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(rows, WIDTH)).astype("float32"), rng.normal(size=(rows, 1))


def trained(device: str, mode: str | None) -> tuple[list[float], int]:
    """The losses of three steps, and the most memory of the last one beyond what it began with."""
    with tf.device(device):
        model = model_of(mode)
        model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
        x, y = data(ROWS)
        losses = [float(model.train_on_batch(x, y)) for _ in range(2)]
        if device == CPU:
            return [*losses, float(model.train_on_batch(x, y))], 0
        tf.config.experimental.reset_memory_stats(DEVICE)
        before = tf.config.experimental.get_memory_info(DEVICE)["current"]
        losses.append(float(model.train_on_batch(x, y)))
        return losses, tf.config.experimental.get_memory_info(DEVICE)["peak"] - before


@pytest.mark.own_process
def test_a_scope_recomputes_blocks_and_lowers_the_peak():
    want, _ = trained(CPU, None)
    all_, stored = trained(WGPU, None)
    again, recomputed = trained(WGPU, "list_of_layers")
    np.testing.assert_allclose(all_, want, rtol=1e-4)
    np.testing.assert_allclose(again, all_, rtol=1e-6)
    # A block stores its hidden layer before and after the activation. Recomputed ones store their
    # inputs, a quarter of that layer, and only the block whose gradient is computed has the rest.
    assert stored > 2 * BLOCKS * HIDDEN
    assert recomputed < (BLOCKS / 4 + 5) * HIDDEN, (recomputed / HIDDEN, stored / HIDDEN)


def test_recomputed_activations_have_equal_numbers():
    stored, _ = trained(WGPU, None)
    again, _ = trained(WGPU, "activations")
    np.testing.assert_allclose(again, stored, rtol=1e-6)


@pytest.mark.parametrize("device", [CPU, WGPU])
@pytest.mark.parametrize("mode", ["full", "larger_than"])
def test_scopes_that_keras_cannot_trace(mode, device):
    """TensorFlow's recompute_grad refuses keyword arguments in functions, and Keras gives
    `training` to a Dense layer as one. So these modes fail on every device.
    """
    with pytest.raises(ValueError, match="keywords arguments only when eager"):
        trained(device, mode)


@pytest.mark.own_process
def test_recompute_grad_in_a_loop_of_blocks():
    """TensorFlow's own function, in a tf.function."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, WIDTH)).astype("float32")
    weights = [rng.normal(size=(WIDTH, 4 * WIDTH)).astype("float32") / 8 for _ in range(BLOCKS)]

    def gradients(device: str, wrap) -> tuple[list[np.ndarray], int]:
        with tf.device(device):
            variables = [tf.Variable(w) for w in weights]
            inputs = tf.constant(x)

            def block(v):
                return wrap(lambda y: tf.nn.relu(tf.tanh(y @ v) @ tf.transpose(v)))

            @tf.function
            def step():
                with tf.GradientTape() as tape:
                    y = inputs
                    for v in variables:
                        y = y + block(v)(y)
                    loss = tf.reduce_mean(y * y)
                return tape.gradient(loss, variables)

            step()
            if device != CPU:
                tf.config.experimental.reset_memory_stats(DEVICE)
                before = tf.config.experimental.get_memory_info(DEVICE)["current"]
            found = [g.numpy() for g in step()]
            peak = 0
            if device != CPU:
                peak = tf.config.experimental.get_memory_info(DEVICE)["peak"] - before
        return found, peak

    want, _ = gradients(CPU, lambda f: f)
    stored, much = gradients(WGPU, lambda f: f)
    again, little = gradients(WGPU, tf.recompute_grad)
    for g, s, w in zip(again, stored, want):
        np.testing.assert_allclose(g, s, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(g, w, rtol=1e-3, atol=1e-5)
    assert little < much - (BLOCKS - 2) * HIDDEN, (little / HIDDEN, much / HIDDEN)


@pytest.mark.parametrize("make", [keras.optimizers.SGD, keras.optimizers.Adam])
def test_accumulated_gradients_are_those_of_one_batch(make):
    """Four batches, whose gradients are averaged, change the weights as one of four times the size.
    Between, no weight changes.
    """
    x, y = data(64)

    def weights(device: str, parts: int) -> list[np.ndarray]:
        with tf.device(device):
            model = model_of(None)
            steps = parts if parts > 1 else None
            optimizer = make(0.01, gradient_accumulation_steps=steps)
            model.compile(optimizer=optimizer, loss="mse")
            first = [w.copy() for w in model.get_weights()]
            for _ in range(2):
                for i in range(parts):
                    size = len(x) // parts
                    batch = slice(i * size, (i + 1) * size)
                    model.train_on_batch(x[batch], y[batch])
                    if i == 0 and parts > 1 and first:
                        same = zip(model.get_weights(), first)
                        assert all(np.array_equal(new, old) for new, old in same)
                first = []
            return model.get_weights()

    whole, parts, cpu = weights(WGPU, 1), weights(WGPU, 4), weights(CPU, 4)
    for w, p, c in zip(whole, parts, cpu):
        # Adam divides a gradient by its own size, and so amplifies the error of a small one.
        atol = 1e-5 if make is keras.optimizers.SGD else 2e-3
        np.testing.assert_allclose(p, w, rtol=1e-4, atol=atol)
        np.testing.assert_allclose(p, c, rtol=1e-4, atol=atol)
