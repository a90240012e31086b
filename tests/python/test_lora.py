"""Training of low-rank adapters: on float, int8 and int4 layers the losses are the CPU's, only
adapters have optimizer state, only adapters change, and no gradient of a kernel is computed. For
float layers the optimizer's pass `low_rank` sees to that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import CPU, WGPU
from test_loops import PASSES

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


#: The width of the layers that the pass rewrites: at least 16 times the rank.
WIDE, HEADS = 32, 3
#: Gemma's and Llama's projections to heads, each with the output of its attention, and a dense
#: layer.
EQUATIONS = {
    "gemma": ("btd,ndh->btnh", (None, HEADS, WIDE)),
    "gemma_output": ("btnh,nhd->btd", (None, WIDE)),
    "gemma_one_head": ("btd,ndh->btnh", (None, 1, WIDE)),
    "gemma_one_head_output": ("btnh,nhd->btd", (None, WIDE)),
    "llama": ("bqm,muh->bquh", (None, HEADS, WIDE)),
    "llama_output": ("bquh,uhm->bqm", (None, WIDE)),
}
#: The largest relative difference of a loss, and of the change of an adapter. Keras rounds the sum
#: of weights and adapters to 16 bits, and the pass rounds other values.
ROUNDING = {
    "float32": (1e-5, 1e-4),
    "mixed_bfloat16": (1e-2, 0.15),
    "bfloat16": (1e-2, 0.15),
    "mixed_float16": (1e-3, 1e-2),
}


def enable_lora(layer: keras.Layer) -> None:
    """Adds adapters, with a scale if Keras has one."""
    has_scale = "lora_alpha" in inspect.signature(layer.enable_lora).parameters
    layer.enable_lora(RANK, **({"lora_alpha": 2 * RANK} if has_scale and "d" in layer.name else {}))


def wide(device: str, policy: str, steps: int = 1) -> keras.Model:
    """Layers of each kind, each with adapters, with the same weights on each device. A call of the
    function that trains takes a number of steps, in a loop.
    """
    with tf.device(device):
        x = inputs = keras.Input((None, WIDE), dtype="float32")
        for name, (equation, shape) in EQUATIONS.items():
            layer = keras.layers.EinsumDense(equation, shape, name=name, dtype=policy)
            x = layer(x)
        dense = keras.layers.Dense(
            2 * WIDE, activation="relu", use_bias=False, name="dense", dtype=policy
        )
        x = dense(x)
        outputs = keras.layers.Dense(CLASSES, name="head", trainable=False, dtype="float32")(x)
        model = keras.Model(inputs, outputs)
        rng = np.random.default_rng(3)
        model.set_weights([rng.normal(size=w.shape) / 8 for w in model.get_weights()])
        for layer in model.layers[1:-1]:
            enable_lora(layer)
            for v in (layer.lora_kernel_a, layer.lora_kernel_b):
                v.assign(rng.normal(size=v.shape) / 5)
        model.compile(
            optimizer=keras.optimizers.SGD(0.1),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            steps_per_execution=steps,
        )
    return model


def examples(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(count, LENGTH, WIDE)).astype("float32")
    return x, rng.integers(0, CLASSES, (count, LENGTH))


def compare(
    policy: str, train: Callable[[keras.Model], list[float]], scope=tf.device, steps: int = 1
) -> None:
    """Trains on each device and compares losses and the changes of adapters."""
    results = []
    for device in (WGPU, CPU):
        model = wide(device, policy, steps)
        before = [v.numpy() for v in model.variables if is_adapter(v)]
        with scope(device):
            losses = train(model)
        after = [v.numpy() for v in model.variables if is_adapter(v)]
        results.append((losses, [b - a for a, b in zip(before, after, strict=True)]))
    (losses, changes), (expected, others) = results
    of_loss, of_change = ROUNDING[policy]
    np.testing.assert_allclose(losses, expected, rtol=of_loss)
    for change, other in zip(changes, others, strict=True):
        assert_near(change, other, of_change)


def assert_near(value: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    largest = np.abs(expected).max()
    assert largest > 0
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance * largest)


def step(model: keras.Model, x: np.ndarray, y: np.ndarray) -> float:
    return float(model.train_on_batch(x, y, return_dict=True)["loss"])


@pytest.mark.parametrize("policy", ROUNDING)
def test_layers_of_each_kind_are_trained(policy):
    x, y = examples(4)
    compare(policy, lambda model: [step(model, x, y) for _ in range(3)])


def test_the_optimizer_without_the_pass_trains_the_same(monkeypatch):
    others = ",".join(name for name in PASSES if name != "low_rank")
    monkeypatch.setenv("TF_WGPU_OPTIMIZER", others)
    test_layers_of_each_kind_are_trained("float32")


@pytest.mark.parametrize(("size", "steps"), [(3, 1), (8, 1), (5, 2)])
def test_fit_trains_with_batches_of_any_size(size, steps):
    """Keras's batches have an unknown size, and the last one is smaller."""
    x, y = examples(10)

    def train(model: keras.Model) -> list[float]:
        history = model.fit(x, y, batch_size=size, epochs=2, shuffle=False, verbose=0)
        return history.history["loss"]

    # Datasets have no kernels on WGPU, which gets the other ops without a scope, too.
    compare("float32", train, lambda device: tf.device(CPU if device == CPU else None), steps)


@pytest.mark.parametrize("shape", [(4, LENGTH), (None, LENGTH)])
@pytest.mark.parametrize("policy", ["float32", "bfloat16"])
def test_no_product_has_the_size_of_a_kernel(policy, shape):
    """The gradients are those of the products of low rank, which the pass names."""
    model = wide(WGPU, policy)
    x, y = examples(4)
    adapters = [v.value for v in model.trainable_variables if is_adapter(v)]
    signature = [tf.TensorSpec([*shape, WIDE], tf.float32), tf.TensorSpec(shape, tf.int64)]

    @tf.function(input_signature=signature)
    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x, y, model(x, training=True))
        return tape.gradient(loss, adapters)

    with tf.device(WGPU):
        found, nodes = optimized(gradients, tf.constant(x), tf.constant(y))
    rewritten = {node.name.split("/low_rank/")[0] for node in nodes if "/low_rank/" in node.name}
    assert len(rewritten) == len(EQUATIONS) + 1, rewritten
    with tf.device(CPU):
        expected = gradients.python_function(tf.constant(x), tf.constant(y))
    for gradient, other in zip(found, expected, strict=True):
        assert_near(gradient.numpy(), other.numpy(), ROUNDING[policy][1])
