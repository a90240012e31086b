"""Random valid Keras networks: layers, shapes, branches, types, optimizers and losses by a seed.

A tensor is an image, a sequence or a vector. Each layer is a row that says which of these it takes
and gives, so that every drawn network is valid. Random layers, such as Dropout, are left out:
devices draw different numbers for some types.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
from keras import layers
from weights import randomize

BATCH = 3


class Row(NamedTuple):
    """A layer: the kinds of its input and output tensors, and a function that makes it for a
    tensor.
    """

    takes: str
    gives: str
    make: Callable


def one_of(random, values):
    """One of some values, which may have different types."""
    return values[random.integers(len(values))]


def odd(random):
    """A small extent, often not a multiple of a power of two."""
    return int(random.integers(1, 14))


ACTIVATIONS = [
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "tanh",
    "sigmoid",
    "hard_sigmoid",
    "hard_silu",
    "hard_tanh",
    "softplus",
    "softsign",
    "softmax",
    "log_softmax",
    "log_sigmoid",
    "exponential",
    "tanh_shrink",
    "sparse_plus",
    "squareplus",
    "glu",
    "linear",
]


def activation(random, x):
    """An activation that fits the tensor: `glu` halves the last axis."""
    name = one_of(random, ACTIVATIONS)
    if name == "glu" and x.shape[-1] % 2:
        name = "gelu"
    return layers.Activation(name)


def normalization(random, x):
    """A normalization over features or groups."""
    groups = [g for g in (1, 2, 3, 5) if x.shape[-1] % g == 0]
    return one_of(
        random,
        [
            lambda: layers.BatchNormalization(momentum=0.8),
            lambda: layers.LayerNormalization(),
            lambda: layers.RMSNormalization(),
            lambda: layers.UnitNormalization(),
            lambda: layers.GroupNormalization(int(one_of(random, groups))),
        ],
    )()


def convolution(random, x):
    """A convolution of images with random kernel, stride, dilation, groups and padding."""
    stride = int(random.integers(1, 3))
    dilation = int(random.integers(1, 3)) if stride == 1 else 1
    channels = x.shape[-1]
    groups = int(one_of(random, [g for g in (1, 2, 3) if channels % g == 0]))
    return layers.Conv2D(
        groups * int(random.integers(1, 6)),
        (int(random.integers(1, 4)), int(random.integers(1, 4))),
        strides=stride,
        dilation_rate=dilation,
        groups=groups,
        padding="same",
        activation=one_of(random, ["relu", "silu", None]),
    )


def recurrent(random, sequences):
    """A recurrent layer, in either direction or in both."""
    kind = one_of(random, [layers.LSTM, layers.GRU, layers.SimpleRNN])
    made = kind(odd(random), return_sequences=sequences, go_backwards=bool(random.integers(2)))
    if random.integers(3) == 0:
        made = layers.Bidirectional(
            kind(odd(random), return_sequences=sequences),
            merge_mode=str(one_of(random, ["sum", "concat", "ave", "mul"])),
        )
    return made


class SelfAttention(layers.Layer):
    """Attention of a sequence to itself, by heads or without."""

    def __init__(self, heads, size, groups, causal, **kwargs):
        super().__init__(**kwargs)
        self.causal = causal
        if groups:
            self.inner = layers.GroupQueryAttention(size, heads * groups, heads)
        else:
            self.inner = layers.MultiHeadAttention(heads, size)

    def build(self, shape):
        """Builds the inner layer."""
        self.inner.build(shape, shape)

    def call(self, x):
        """The attention."""
        return self.inner(x, x, use_causal_mask=self.causal)


def attention(random, x):
    """Self-attention, with and without grouped queries and a causal mask."""
    return SelfAttention(
        int(random.integers(1, 4)),
        int(random.integers(1, 9)),
        int(random.integers(0, 3)),
        bool(random.integers(2)),
    )


ROWS = [
    *(Row(kind, kind, activation) for kind in ("image", "sequence", "vector")),
    *(Row(kind, kind, normalization) for kind in ("image", "sequence", "vector")),
    *(Row(kind, kind, lambda r, x: layers.Dense(odd(r))) for kind in ("image", "sequence")),
    Row("image", "image", convolution),
    Row("image", "image", convolution),
    Row("image", "image", lambda r, x: layers.DepthwiseConv2D(3, padding="same")),
    Row("image", "image", lambda r, x: layers.SeparableConv2D(odd(r), 3, padding="same")),
    Row(
        "image", "image", lambda r, x: layers.Conv2DTranspose(odd(r), 3, strides=2, padding="same")
    ),
    Row("image", "image", lambda r, x: layers.MaxPooling2D(2, padding="same")),
    Row("image", "image", lambda r, x: layers.AveragePooling2D(3, 2, padding="same")),
    Row("image", "image", lambda r, x: layers.ZeroPadding2D(((0, 1), (2, 0)))),
    Row(
        "image",
        "image",
        lambda r, x: layers.UpSampling2D(2, interpolation=str(one_of(r, ["nearest", "bilinear"]))),
    ),
    Row("image", "image", lambda r, x: layers.PReLU()),
    Row("image", "sequence", lambda r, x: layers.Reshape((-1, x.shape[-1]))),
    Row("image", "sequence", lambda r, x: layers.TimeDistributed(layers.Flatten())),
    Row("image", "vector", lambda r, x: layers.GlobalAveragePooling2D()),
    Row("image", "vector", lambda r, x: layers.GlobalMaxPooling2D()),
    Row("sequence", "sequence", lambda r, x: recurrent(r, True)),
    Row("sequence", "sequence", attention),
    Row("sequence", "sequence", lambda r, x: layers.Conv1D(odd(r), 3, padding="causal")),
    Row("sequence", "sequence", lambda r, x: layers.SeparableConv1D(odd(r), 3, padding="same")),
    Row("sequence", "sequence", lambda r, x: layers.MaxPooling1D(2, padding="same")),
    Row("sequence", "sequence", lambda r, x: layers.AveragePooling1D(2, padding="same")),
    Row("sequence", "sequence", lambda r, x: layers.Permute((2, 1))),
    Row("sequence", "vector", lambda r, x: recurrent(r, False)),
    Row("sequence", "vector", lambda r, x: layers.Flatten()),
    Row("sequence", "vector", lambda r, x: layers.GlobalAveragePooling1D()),
    Row("vector", "vector", lambda r, x: layers.Dense(odd(r), activation="tanh")),
    Row("vector", "sequence", lambda r, x: layers.RepeatVector(int(r.integers(1, 6)))),
    Row("vector", "sequence", lambda r, x: layers.Reshape((-1, 1))),
]
MERGES = [layers.Add, layers.Multiply, layers.Average, layers.Maximum, layers.Subtract]
OPTIMIZERS = [
    lambda: keras.optimizers.SGD(0.01),
    lambda: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True),
    lambda: keras.optimizers.Adam(1e-3),
    lambda: keras.optimizers.Adam(1e-3, amsgrad=True, clipnorm=1.0),
    lambda: keras.optimizers.AdamW(1e-3, use_ema=True),
    lambda: keras.optimizers.RMSprop(1e-3, centered=True),
    lambda: keras.optimizers.Adagrad(0.01),
    lambda: keras.optimizers.Adadelta(0.1),
    lambda: keras.optimizers.Adamax(1e-3),
    lambda: keras.optimizers.Nadam(1e-3, global_clipnorm=1.0),
    lambda: keras.optimizers.Ftrl(0.01),
    lambda: keras.optimizers.Lamb(1e-3),
    lambda: keras.optimizers.Adafactor(1e-3),
    lambda: keras.optimizers.Muon(1e-3),
]
#: Losses by the end of the network.
LOSSES = {
    "linear": ["mse", "mae", "huber", "log_cosh", "cosine_similarity", "hinge"],
    "sigmoid": ["binary_crossentropy", "binary_focal_crossentropy", "mse", "squared_hinge"],
    "softmax": ["categorical_crossentropy", "kl_divergence", "categorical_focal_crossentropy"],
    "softplus": ["poisson", "mean_squared_logarithmic_error"],
}
POLICIES = ["float32"] * 5 + ["mixed_float16", "mixed_bfloat16", "float64"]


class Network(NamedTuple):
    """A compiled model, its data, and the type that it computes in."""

    model: keras.Model
    x: np.ndarray
    y: np.ndarray
    dtype: str


def kind_of(x) -> str:
    """The kind of a tensor, by its rank."""
    return {4: "image", 3: "sequence", 2: "vector"}[len(x.shape)]


def grow(random, x):
    """Adds one more layer, or a branch that is merged with its own input."""
    rows = [row for row in ROWS if row.takes == kind_of(x)]
    row = one_of(random, rows)
    y = row.make(random, x)(x)
    if y.shape == x.shape and random.integers(2):
        return one_of(random, MERGES)()([x, y])
    if y.shape[1:-1] == x.shape[1:-1] and random.integers(4) == 0:
        return layers.Concatenate()([x, y])
    # A tensor that grows without bound would take minutes.
    if np.prod([d or 1 for d in y.shape]) > 2000:
        return x
    return y


def network(seed: int) -> Network:
    """The network of a seed: the same in every process."""
    random = np.random.default_rng(seed)
    policy = one_of(random, POLICIES)
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy(policy)
    # Losses and metrics use the type of floats, not the policy. The type stays for the training.
    keras.config.set_floatx("float64" if policy == "float64" else "float32")
    try:
        shape = one_of(
            random,
            [
                (odd(random) + 3, odd(random) + 3, int(random.integers(1, 5))),
                (odd(random), odd(random)),
                (odd(random),),
            ],
        )
        inputs = x = keras.Input(shape)
        for _ in range(int(random.integers(3, 9))):
            x = grow(random, x)
        while kind_of(x) != "vector":
            x = layers.Flatten()(x)
        end = one_of(random, list(LOSSES))
        classes = int(random.integers(2, 8))
        outputs = layers.Dense(classes, activation=end)(x)
        model = keras.Model(inputs, outputs)
        model.compile(
            optimizer=one_of(random, OPTIMIZERS)(),
            loss=one_of(random, LOSSES[end]),
            # With loss scaling the first steps of float16 overflow on purpose, and are skipped.
            auto_scale_loss=False,
        )
    finally:
        keras.config.set_dtype_policy("float32")
    randomize(model, seed)
    x = random.normal(0, 1, (2 * BATCH, *shape)).astype("float32")
    y = np.eye(classes)[random.integers(0, classes, 2 * BATCH)].astype("float32")
    return Network(model, x, y, policy.removeprefix("mixed_"))
