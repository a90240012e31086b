"""Models, and steps of them and of smaller workloads, for benchmarks.

A step is a function without arguments whose result depends on everything that it computes. The step
and its data are made on the device in whose scope its maker is called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensorflow_wgpu.bench import catalogue

Step = Callable[[], tf.Tensor]

CLASSES = 10


def gelu() -> Step:
    """A GELU by tanh over 16 M floats, as Keras writes it."""
    x = tf.random.normal([16 << 20])
    return lambda: 0.5 * x * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def layer_norm() -> Step:
    """Layer normalization of 4096 rows of 1024 floats."""
    import keras

    layer = keras.layers.LayerNormalization()
    x = tf.random.normal([4096, 1024])
    layer.build(x.shape)
    return lambda: layer(x)


def layer_norm_gradient() -> Step:
    """The same with its gradients."""
    import keras

    layer = keras.layers.LayerNormalization()
    x = tf.random.normal([4096, 1024])
    layer.build(x.shape)

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x) ** 2)
        return tf.add_n(
            [tf.reduce_sum(g) for g in tape.gradient(loss, [x, *layer.trainable_variables])]
        )

    return step


def softmax() -> Step:
    """A softmax of 4096 rows of 1024 floats in elementary ops, as in `logsumexp` and masked
    softmaxes.
    """
    x = tf.random.normal([4096, 1024])

    def step() -> tf.Tensor:
        shifted = x - tf.reduce_max(x, axis=-1, keepdims=True)
        powers = tf.exp(shifted)
        return powers / tf.reduce_sum(powers, axis=-1, keepdims=True)

    return step


def adam() -> Step:
    """A step of Keras's Adam for the variables of ResNet50."""
    import keras

    model = keras.applications.ResNet50(weights=None)
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    gradients = [tf.random.normal(v.shape) for v in model.trainable_variables]

    def step() -> tf.Tensor:
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return model.trainable_variables[0].value

    return step


def training(model: Any, x: tf.Tensor, y: tf.Tensor) -> Step:
    """A training step: forward, cross entropy, gradients, Adam."""
    import keras

    optimizer = keras.optimizers.Adam()
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step


def inference(model: Any, x: tf.Tensor, y: tf.Tensor) -> Step:
    """The forward pass."""
    del y
    return lambda: model(x, training=False)


PHASES = {"inference": inference, "training": training}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of models and of their batches."""

    #: Images or sequences of a step.
    batch: int = 4
    #: Width and height of an image.
    image: int = 64
    #: Positions of a sequence.
    length: int = 64
    #: Features of a position.
    width: int = 128
    #: Layers of the transformer and of the LSTM.
    blocks: int = 2


#: For GPUs. With the defaults, the benchmark ends in minutes on a software adapter.
FULL = Sizes(batch=32, image=224, length=256, width=768, blocks=12)
#: Only shows that everything works.
TINY = Sizes(batch=2, image=32, length=8, width=16, blocks=1)


def application(name: str) -> Callable[[Sizes], Any]:
    """The maker of one of Keras's applications."""

    def make(sizes: Sizes) -> Any:
        import keras

        shape = (sizes.image, sizes.image, 3)
        options = {
            "weights": None,
            "classes": CLASSES,
            "input_shape": shape,
            "classifier_activation": None,
        }
        return getattr(keras.applications, name)(**options)

    return make


def transformer_model(width: int = 128, heads: int = 4, length: int = 64, blocks: int = 2) -> Any:
    """An encoder with a classifier."""
    import keras

    x = inputs = keras.Input((length, width))
    for _ in range(blocks):
        attended = keras.layers.MultiHeadAttention(heads, width // heads)(x, x)
        x = keras.layers.LayerNormalization()(x + attended)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(width)(hidden))
    return keras.Model(
        inputs, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling1D()(x))
    )


def lstm_model(sizes: Sizes) -> Any:
    """LSTM layers with a classifier."""
    import keras

    x = inputs = keras.Input((sizes.length, sizes.width))
    for block in range(sizes.blocks):
        x = keras.layers.LSTM(sizes.width, return_sequences=block < sizes.blocks - 1)(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(x))


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and the unit of its speed."""

    #: A description in one line.
    what: str
    #: Makes the model.
    make: Callable[[Sizes], Any]
    #: `images` or `tokens`.
    unit: str

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape of a batch."""
        if self.unit == "images":
            return (sizes.batch, sizes.image, sizes.image, 3)
        return (sizes.batch, sizes.length, sizes.width)

    def units(self, sizes: Sizes) -> int:
        """Images or tokens of a batch."""
        return sizes.batch if self.unit == "images" else sizes.batch * sizes.length

    def data(self, sizes: Sizes) -> tuple[tf.Tensor, tf.Tensor]:
        """A batch with its labels, the same every time."""
        x = tf.random.stateless_normal(self.shape(sizes), seed=(1, 2))
        y = tf.random.stateless_uniform([sizes.batch], seed=(3, 4), maxval=CLASSES, dtype=tf.int64)
        return tf.identity(x), tf.identity(y)


def transformer(sizes: Sizes) -> Any:
    """The encoder with heads of at most 64 features."""
    heads = max(sizes.width // 64, 2)
    return transformer_model(sizes.width, heads, sizes.length, sizes.blocks)


MAKERS: dict[str, Callable[[Sizes], Any]] = {
    "resnet50": application("ResNet50"),
    "mobilenet_v2": application("MobileNetV2"),
    "efficientnet_b0": application("EfficientNetB0"),
    "transformer": transformer,
    "lstm": lstm_model,
}

MODELS = {
    name: Workload(entry.title, MAKERS[name], entry.unit)
    for name, entry in catalogue.MODELS.items()
}


def step_of(model: str, phase: str, sizes: Sizes) -> Step:
    """A model's step with data of its own."""
    workload = MODELS[model]
    return PHASES[phase](workload.make(sizes), *workload.data(sizes))
