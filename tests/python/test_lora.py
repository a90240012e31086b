"""Training of low-rank adapters: on float, int8 and int4 layers the losses are the CPU's, only
adapters have optimizer state, only adapters change, and no gradient of a quantized kernel is
computed.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import CPU, WGPU

RANK, LENGTH, WIDTH, CLASSES = 2, 6, 16, 8
PRECISIONS = ["float32", "mixed_bfloat16", "int8", "int4"]
#: The largest relative difference of a loss. Numbers that are nearly halfway between two steps of
#: int8 may be rounded to either.
TOLERANCES = {"float32": 1e-5, "mixed_bfloat16": 2e-2, "int8": 2e-2, "int4": 2e-2}


def adapted(device: str, precision: str) -> keras.Model:
    """A head over two layers with adapters, with the same weights on each device."""
    policy = precision if precision in ("float32", "mixed_bfloat16") else "float32"
    with tf.device(device):
        x = inputs = keras.Input((LENGTH, WIDTH), dtype="float32")
        heads = keras.layers.EinsumDense("abc,cde->abde", output_shape=(None, 4, 8), dtype=policy)
        x = keras.layers.Reshape((LENGTH, 32), dtype=policy)(heads(x))
        # Keras trains the biases of layers with adapters, so these have none.
        middle = keras.layers.Dense(WIDTH, activation="relu", use_bias=False, dtype=policy)
        last = keras.layers.Dense(CLASSES, dtype=policy)
        model = keras.Model(inputs, last(middle(x)))
        rng = np.random.default_rng(1)
        model.set_weights([rng.normal(size=w.shape) / 3 for w in model.get_weights()])
        if policy != precision:
            model.quantize(precision)
        for layer in model.layers:
            layer.trainable = False
        for layer in (heads, middle):
            layer.trainable = True
            layer.enable_lora(RANK)
            for v in (layer.lora_kernel_a, layer.lora_kernel_b):
                v.assign(rng.normal(size=v.shape) / 3)
        model.compile(
            optimizer=keras.optimizers.Adam(1e-2),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
    return model


def batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(4, LENGTH, WIDTH)).astype("float32")
    return x, rng.integers(0, CLASSES, (4, LENGTH))


def is_adapter(variable: keras.Variable) -> bool:
    return "lora" in variable.path


@pytest.mark.parametrize("precision", PRECISIONS)
def test_only_adapters_are_trained(precision):
    x, y = batch()
    losses = {}
    for device in (CPU, WGPU):
        model = adapted(device, precision)
        frozen = [v.numpy() for v in model.variables if not is_adapter(v)]
        adapters = [v.numpy() for v in model.variables if is_adapter(v)]
        with tf.device(device):
            losses[device] = [
                float(model.train_on_batch(x, y, return_dict=True)["loss"]) for _ in range(4)
            ]
        trained = [v for v in model.trainable_variables if is_adapter(v)]
        assert len(trained) == len(adapters) == 4
        after = [v.numpy() for v in model.variables if not is_adapter(v)]
        # The metric's state is not among the model's layers' variables.
        layers = sum(len(layer.variables) for layer in model.layers) - len(adapters)
        assert all(np.array_equal(a, b) for a, b in zip(after[:layers], frozen[:layers]))
        changed = [v.numpy() for v in model.variables if is_adapter(v)]
        assert not any(np.array_equal(a, b) for a, b in zip(changed, adapters))
    np.testing.assert_allclose(losses[WGPU], losses[CPU], rtol=TOLERANCES[precision])


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_quantized_kernel_has_no_gradient(precision):
    """The optimizer has two moments for each trained variable, and each product is needed: a frozen
    one forward and one for the gradient of its inputs where an earlier layer is trained, two of
    each adapter forward, and three or four backward.
    """
    model = adapted(WGPU, precision)
    x, y = batch()
    with tf.device(WGPU):
        model.train_on_batch(x, y)
        slots = [v for v in model.optimizer.variables if len(v.shape)]
        trained = model.trainable_variables
        assert sum(int(np.prod(v.shape)) for v in slots) == 2 * sum(
            int(np.prod(v.shape)) for v in trained if is_adapter(v)
        )

        @tf.function
        def gradients(x, y):
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x, y, model(x, training=True))
            return tape.gradient(loss, [v.value for v in trained if is_adapter(v)])

        _, nodes = optimized(gradients, tf.constant(x), tf.constant(y))
    found = {op: n for op, n in ops(nodes).items() if "MatMul" in op or "Einsum" in op}
    # Forward: three frozen layers and two adapters of two products. Backward: the inputs of the
    # last two frozen layers; of the second adapter both factors, what lies between and its inputs;
    # of the first one the same without its inputs.
    assert sum(found.values()) == 3 + 4 + 2 + 4 + 3, found
