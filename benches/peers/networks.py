"""Ten networks of Keras with random weights, one forward pass of each as a row.

They have the usual sizes, or small ones for software adapters, with fewer layers, smaller images
and shorter sequences. Any Python can import the table; the makers import Keras.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

#: Stands for floats; another number n stands for whole numbers below n.
FLOATS = 0


class Input(NamedTuple):
    """An input of a network."""

    shape: tuple[int, ...]
    #: `FLOATS`, or the number of different whole numbers.
    below: int = FLOATS

    @property
    def dtype(self) -> str:
        """Its type."""
        return "int32" if self.below else "float32"


class Sizes(NamedTuple):
    """The sizes of a network, which are the arguments of its maker."""

    #: Its text in the table.
    title: str
    #: The batch.
    batch: int
    #: Width and height of an image, or positions of a sequence.
    length: int
    #: Layers.
    layers: int = 0
    #: Features, heads and rows of tables, for the networks that are made here.
    width: int = 0
    heads: int = 0
    words: int = 0


class Network(NamedTuple):
    """A row of the table."""

    key: str
    title: str
    #: Makes the model with these sizes.
    make: Callable[[Sizes], Any]
    #: Sizes for GPUs, and for software adapters.
    full: Sizes
    small: Sizes

    def sizes(self, small: bool) -> Sizes:
        """The sizes for GPUs or for software adapters."""
        return self.small if small else self.full


def inputs_of(model: Any) -> list[Input]:
    """A model's inputs, in its order. By their names, whole numbers are words or positions."""
    return [
        Input(tuple(tensor.shape), int(tensor.name.partition("_below_")[2].partition("_")[0] or 0))
        for tensor in model.inputs
    ]


def forward(model: Any) -> Callable[..., list[Any]]:
    """A model's pass as a function of its inputs, in their order; a list of results."""

    def step(*inputs: Any) -> list[Any]:
        results = model(list(inputs) if len(inputs) > 1 else inputs[0], training=False)
        return results if isinstance(results, list) else [results]

    return step


def tokens(sizes: Sizes, length: int, name: str = "words", below: int = 0) -> Any:
    """An input of words, whose name contains the number of different words."""
    import keras

    name = f"{name}_below_{below or sizes.words}"
    return keras.Input((length,), sizes.batch, dtype="int32", name=name)


def learned(x: Any, *shape: int) -> Any:
    """A weight in the network of `x`."""
    import keras

    class Learned(keras.layers.Layer):
        """Returns the weight for any input."""

        def build(self, _: Any) -> None:
            self.value = self.add_weight(shape=shape, initializer="random_normal")

        def call(self, _: Any) -> Any:
            return keras.ops.convert_to_tensor(self.value)

    return Learned()(x)


def block(x: Any, attend: Callable[[Any], Any], width: int, before: bool) -> Any:
    """A block of a transformer, with layer normalization before its halves or after them."""
    from keras import layers

    norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(2)]
    up, down = layers.Dense(4 * width, activation="gelu"), layers.Dense(width)
    for norm, half in zip(norms, (attend, lambda y: down(up(y)))):
        x = x + half(norm(x)) if before else norm(x + half(x))
    return x


def bert(sizes: Sizes) -> Any:
    """BERT-base: words, positions and segments, and blocks with normalization after them."""
    import keras
    from keras import layers

    words, segments = tokens(sizes, sizes.length), tokens(sizes, sizes.length, "segments", 2)
    x = layers.Embedding(sizes.words, sizes.width)(words)
    x = x + layers.Embedding(2, sizes.width)(segments)
    x = x + learned(x, sizes.length, sizes.width)
    x = layers.LayerNormalization(epsilon=1e-12)(x)
    for _ in range(sizes.layers):
        attention = layers.MultiHeadAttention(sizes.heads, sizes.width // sizes.heads)
        x = block(x, lambda y, attention=attention: attention(y, y), sizes.width, before=False)
    pooled = layers.Dense(sizes.width, activation="tanh")(x[:, 0])
    return keras.Model([words, segments], [x, pooled])


def vit(sizes: Sizes) -> Any:
    """ViT-B/16 with a class token."""
    import keras
    from keras import layers

    image = keras.Input((sizes.length, sizes.length, 3), sizes.batch)
    x = layers.Conv2D(sizes.width, 16, 16)(image)
    count = (sizes.length // 16) ** 2
    x = layers.Reshape((count, sizes.width))(x)
    first = keras.ops.broadcast_to(learned(x, sizes.width), (sizes.batch, 1, sizes.width))
    x = keras.ops.concatenate([first, x], 1) + learned(x, count + 1, sizes.width)
    for _ in range(sizes.layers):
        attention = layers.MultiHeadAttention(sizes.heads, sizes.width // sizes.heads)
        x = block(x, lambda y, attention=attention: attention(y, y), sizes.width, before=True)
    x = layers.LayerNormalization(epsilon=1e-6)(x)[:, 0]
    return keras.Model(image, layers.Dense(1000)(x))


def rotated(x: Any, angles: Any) -> Any:
    """The heads of a position, rotated by its angles."""
    from keras import ops

    low, high = ops.split(x, 2, -1)
    cos, sin = ops.cos(angles), ops.sin(angles)
    return ops.concatenate([low * cos - high * sin, low * sin + high * cos], -1)


def llama(sizes: Sizes) -> Any:
    """One more word of a decoder like Llama: `length` words are in the caches, which grow by one.

    A quarter of the heads are for keys and values.
    """
    import keras
    import numpy as np
    from keras import layers, ops

    batch, heads, each = sizes.batch, sizes.heads, sizes.width // sizes.heads
    shared, hidden = heads // 4, sizes.width * 11 // 4
    word = tokens(sizes, 1)
    position = keras.Input((1,), batch, dtype="float32", name="position")
    past = [
        keras.Input((shared, sizes.length, each), batch, name=f"{what}_{layer}")
        for layer in range(sizes.layers)
        for what in ("keys", "values")
    ]
    present = []

    def linear(x: Any, width: int) -> Any:
        return layers.Dense(width, use_bias=False)(x)

    def split(x: Any, count: int) -> Any:
        return ops.transpose(ops.reshape(x, (batch, 1, count, each)), (0, 2, 1, 3))

    steps = (10000.0 ** -np.linspace(0, 1, each // 2, endpoint=False)).astype("float32")
    angles = ops.reshape(position * steps, (batch, 1, 1, each // 2))
    x = layers.Embedding(sizes.words, sizes.width)(word)
    for layer in range(sizes.layers):
        y = layers.RMSNormalization(epsilon=1e-5)(x)
        q = rotated(split(linear(y, sizes.width), heads), angles)
        k = rotated(split(linear(y, shared * each), shared), angles)
        v = split(linear(y, shared * each), shared)
        k = ops.concatenate([past[2 * layer], k], 2)
        v = ops.concatenate([past[2 * layer + 1], v], 2)
        present += [k, v]
        # The heads of a group that share keys are the rows of one product.
        q = ops.reshape(q, (batch, shared, heads // shared, each))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * each**-0.5
        y = ops.matmul(ops.softmax(scores), v)
        x = x + linear(ops.reshape(y, (batch, 1, sizes.width)), sizes.width)
        y = layers.RMSNormalization(epsilon=1e-5)(x)
        x = x + linear(ops.silu(linear(y, hidden)) * linear(y, hidden), sizes.width)
    x = layers.RMSNormalization(epsilon=1e-5)(x)
    return keras.Model([word, position, *past], [linear(x, sizes.words), *present])


def application(name: str, **options: Any) -> Callable[[Sizes], Any]:
    """The maker of one of Keras's applications."""

    def make(sizes: Sizes) -> Any:
        import keras

        image = keras.Input((sizes.length, sizes.length, 3), sizes.batch)
        maker = getattr(keras.applications, name)
        return maker(weights=None, input_tensor=image, classifier_activation=None, **options)

    return make


def unet(sizes: Sizes) -> Any:
    """A U-Net as in diffusion models: residual blocks, three scales, attention at the smallest."""
    import keras
    from keras import layers, ops

    def normal(x: Any) -> Any:
        return layers.GroupNormalization(min(32, x.shape[-1] // 4), epsilon=1e-5)(x)

    def residual(x: Any, width: int) -> Any:
        y = layers.Conv2D(width, 3, padding="same")(ops.silu(normal(x)))
        y = layers.Conv2D(width, 3, padding="same")(ops.silu(normal(y)))
        return y + (x if x.shape[-1] == width else layers.Conv2D(width, 1)(x))

    def attended(x: Any) -> Any:
        side, width = x.shape[1], x.shape[-1]
        y = ops.reshape(normal(x), (sizes.batch, side * side, width))
        y = layers.MultiHeadAttention(sizes.heads, width // sizes.heads)(y, y)
        return x + ops.reshape(y, x.shape)

    image = keras.Input((sizes.length, sizes.length, 4), sizes.batch)
    widths = [sizes.width, 2 * sizes.width, 4 * sizes.width]
    x = layers.Conv2D(widths[0], 3, padding="same")(image)
    kept = []
    for scale, width in enumerate(widths):
        if scale:
            x = layers.Conv2D(width, 3, 2, padding="same")(x)
        for _ in range(sizes.layers):
            x = residual(x, width)
            x = attended(x) if scale == 2 else x
            kept.append(x)
    x = residual(attended(residual(x, widths[-1])), widths[-1])
    for scale, width in reversed(list(enumerate(widths))):
        for _ in range(sizes.layers):
            x = residual(ops.concatenate([x, kept.pop()], -1), width)
            x = attended(x) if scale == 2 else x
        if scale:
            x = layers.Conv2D(widths[scale - 1], 3, padding="same")(layers.UpSampling2D()(x))
    return keras.Model(image, layers.Conv2D(4, 3, padding="same")(ops.silu(normal(x))))


def recurrent(name: str) -> Callable[[Sizes], Any]:
    """The maker of recurrent layers with a classifier."""

    def make(sizes: Sizes) -> Any:
        import keras

        x = inputs = keras.Input((sizes.length, sizes.width), sizes.batch)
        for layer in range(1, sizes.layers + 1):
            sequences = layer < sizes.layers
            x = getattr(keras.layers, name)(sizes.width, return_sequences=sequences)(x)
        return keras.Model(inputs, keras.layers.Dense(10)(x))

    return make


def images(batch: int, side: int) -> Sizes:
    """The sizes of one of Keras's own networks."""
    return Sizes(f"{batch}×{side}×{side}", batch, side)


NETWORKS = [
    Network(
        "bert",
        "BERT-base",
        bert,
        Sizes("8×128 words, 12 layers", 8, 128, 12, 768, 12, 30522),
        Sizes("1×64 words, 2 layers", 1, 64, 2, 768, 12, 4096),
    ),
    Network(
        "llama",
        "Llama-like decoder, a step",
        llama,
        Sizes("1×1024 cached, 4 layers of 2048", 1, 1024, 4, 2048, 32, 32000),
        Sizes("1×256 cached, 4 layers of 512", 1, 256, 4, 512, 8, 4096),
    ),
    Network(
        "vit",
        "ViT-B/16",
        vit,
        Sizes("8×224×224, 12 layers", 8, 224, 12, 768, 12),
        Sizes("1×112×112, 2 layers", 1, 112, 2, 768, 12),
    ),
    Network("resnet50", "ResNet50", application("ResNet50"), images(8, 224), images(1, 96)),
    Network(
        "efficientnet",
        "EfficientNetB0",
        application("EfficientNetB0"),
        images(8, 224),
        images(1, 96),
    ),
    Network(
        "mobilenet",
        "MobileNetV3 Large",
        application("MobileNetV3Large"),
        images(8, 224),
        images(1, 96),
    ),
    Network(
        "convnext", "ConvNeXt Tiny", application("ConvNeXtTiny"), images(8, 224), images(1, 64)
    ),
    Network(
        "unet",
        "U-Net with attention",
        unet,
        Sizes("4×64×64, 2 blocks, width 128", 4, 64, 2, 128, 8),
        Sizes("1×32×32, 1 block, width 32", 1, 32, 1, 32, 4),
    ),
    Network(
        "lstm",
        "LSTM",
        recurrent("LSTM"),
        Sizes("32×128 steps, 2 layers of 512", 32, 128, 2, 512),
        Sizes("4×32 steps, 2 layers of 128", 4, 32, 2, 128),
    ),
    Network(
        "gru",
        "GRU",
        recurrent("GRU"),
        Sizes("32×128 steps, 1 layer of 512", 32, 128, 1, 512),
        Sizes("4×32 steps, 1 layer of 128", 4, 32, 1, 128),
    ),
]


def network(key: str) -> Network:
    """The network of a key."""
    return next(network for network in NETWORKS if network.key == key)
