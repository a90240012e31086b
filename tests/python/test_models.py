"""Whole models: three training steps on WGPU, every op forced there, equal to the same steps on the
CPU.

SGD with momentum, not Adam: Adam's first steps are the gradients' signs, so that a difference in
the last bit of a gradient near zero moves a weight by the whole learning rate. The optimizers have
their own tests. The steps are small, because a fresh MobileNet on four small images is chaotic: its
gradients are in the hundreds, and a larger step multiplies rounding errors on any device. (Compared
with float64, WGPU's gradients are as close as the CPU's.)
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import CPU, WGPU
from sweep.core import LONG

#: The tolerance of losses and weights for each policy, relative to their size. In 16-bit types each
#: device rounds its own sums.
POLICIES = {"float32": 2e-3, "mixed_float16": 3e-2, "mixed_bfloat16": 1.5e-1}


def transformer() -> keras.Model:
    tokens = keras.Input([12], dtype="int32")
    x = layers.Embedding(50, 16)(tokens) + layers.Embedding(12, 16)(keras.ops.arange(12))
    for _ in range(2):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(2, 8, dropout=0.1)(y, y, use_causal_mask=True)
        y = layers.Dense(32, "gelu")(layers.LayerNormalization()(x))
        x = x + layers.Dropout(0.1)(layers.Dense(16)(y))
    return keras.Model(
        tokens, layers.Dense(10, dtype="float32")(layers.GlobalAveragePooling1D()(x))
    )


def recurrent(layer: Callable) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        tokens = keras.Input([9], dtype="int32")
        x = layers.Embedding(50, 8, mask_zero=True)(tokens)
        x = layers.Bidirectional(layer(8, return_sequences=True))(x)
        return keras.Model(tokens, layers.Dense(10, dtype="float32")(layer(12)(x)))

    return build


def unet() -> keras.Model:
    image = keras.Input([16, 16, 3])
    skips, x = [], image
    for filters in (8, 16):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("swish")(layers.BatchNormalization()(x))
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    for filters, skip in zip((16, 8), reversed(skips)):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same")(x)
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(
            layers.Concatenate()([x, skip])
        )
        x = layers.UpSampling2D(interpolation="nearest")(layers.AveragePooling2D(2)(x))
    x = layers.GroupNormalization(4)(x)
    return keras.Model(
        image,
        layers.Dense(10, dtype="float32")(layers.GlobalMaxPooling2D()(layers.Conv2D(8, 1)(x))),
    )


def application(name: str, size: int, **options: object) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        make = getattr(keras.applications, name)
        model = make(
            weights=None, include_top=False, input_shape=(size, size, 3), pooling="avg", **options
        )
        return keras.Model(model.input, layers.Dense(10, dtype="float32")(model.output))

    return build


MODELS = {
    "transformer": transformer,
    "lstm": recurrent(layers.LSTM),
    "gru": recurrent(layers.GRU),
    "unet": unet,
}
#: Name and image size. Too slow for every run on a software adapter; `make sweep` runs them, in all
#: policies.
APPLICATIONS = {
    "ConvNeXtTiny": 32,
    "DenseNet121": 32,
    "EfficientNetB0": 32,
    "EfficientNetV2B0": 32,
    "InceptionV3": 75,
    "MobileNet": 32,
    "MobileNetV2": 32,
    "MobileNetV3Small": 32,
    "NASNetMobile": 32,
    "ResNet50": 32,
    "ResNet50V2": 32,
    "VGG16": 32,
    "Xception": 71,
}
CASES = [(name, policy) for name in MODELS for policy in POLICIES]
MODELS |= {name: application(name, size) for name, size in APPLICATIONS.items()}
CASES += (
    [(name, policy) for name in APPLICATIONS for policy in POLICIES]
    if LONG
    else [("MobileNetV2", "float32")]
)
# Kernels of the narrower types are tested op by op.
CASES = [
    pytest.param(*case, marks=[] if case[1] == "float32" else [pytest.mark.nightly])
    for case in CASES
]


@pytest.fixture
def policy(request):
    keras.mixed_precision.set_dtype_policy(request.param)
    yield request.param
    keras.mixed_precision.set_dtype_policy("float32")
    keras.backend.clear_session()


@pytest.mark.parametrize(("name", "policy"), CASES, indirect=["policy"])
def test_training_steps(name, policy, rng):
    # In four small images an activation near a kink moves the gradients of the second step by some
    # percent, and the third loss of an application by a percent: on the CPU, too, if the images
    # change by a millionth.
    steps, bound = (2, 50) if name in APPLICATIONS else (3, 10)
    with tf.device(CPU):
        keras.utils.set_random_seed(1)
        start = MODELS[name]().get_weights()
    results = {}
    for device in (CPU, WGPU):
        with tf.device(device):
            keras.utils.set_random_seed(1)
            model = MODELS[name]()
            model.set_weights(start)
            data = batch(model, np.random.default_rng(0))
            results[device] = train(model, device, data, steps)
    (losses, weights), (got_losses, got_weights) = results[CPU], results[WGPU]
    rtol = POLICIES[policy]
    assert losses[-1] != losses[0]
    np.testing.assert_allclose(got_losses, losses, rtol=rtol)
    for got, want, before in zip(got_weights, weights, start):
        # Relative to the distance by which the training moved this tensor; the bias before a
        # normalization moves only because of rounding.
        scale = np.abs(want - before).max(initial=0) + 1e-4 * np.abs(want).max(initial=0) + 1e-6
        np.testing.assert_allclose(got, want, rtol=0, atol=bound * rtol * scale)


def batch(model: keras.Model, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Four examples for the model."""
    shape = (4, *model.input_shape[1:])
    if model.input.dtype == "int32":
        x = rng.integers(1, 50, shape).astype("int32")
        x[:, -2:] = 0  # Padding, which recurrent layers mask.
    else:
        x = rng.normal(size=shape).astype("float32")
    return x, rng.integers(0, 10, 4).astype("int32")


def train(
    model: keras.Model, device: str, data: tuple[np.ndarray, np.ndarray], steps: int
) -> tuple[list[float], list[np.ndarray]]:
    """Losses of the steps, and the weights after them. `device` is forced on every op."""
    optimizer = keras.optimizers.SGD(5e-4, momentum=0.9, global_clipnorm=0.2)
    if keras.mixed_precision.dtype_policy().name == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=128.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.device(device):
            with tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
                scaled = optimizer.scale_loss(value)
            optimizer.apply(
                tape.gradient(scaled, model.trainable_variables), model.trainable_variables
            )
            return value

    with tf.device(device):
        x, y = map(tf.constant, data)
        losses = [float(step(x, y)) for _ in range(steps)]
    return losses, model.get_weights()
