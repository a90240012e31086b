"""Draws what the graph optimizer makes of a transformer block and of a block of EfficientNet:
docs/pictures/*.svg.

python docs/make_optimizer_pictures.py

Each block is traced in a process of its own, whose optimizer writes the graphs before and after
(`TF_WGPU_DUMP`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

PICTURES = Path(__file__).parent / "pictures"
BLOCKS = {
    "transformer_block": "The forward pass of a transformer block",
    "transformer_block_training": "The gradients of a transformer block",
    "efficientnet_block": "The forward pass of a block of EfficientNet",
}


def transformer_block(training: bool = False) -> None:
    """Attention and a feed-forward layer with a GELU, both with a residual and a layer
    normalization.
    """
    import keras
    import tensorflow as tf

    width, heads, length = 64, 4, 32
    with tf.device("/device:WGPU:0"):
        x = keras.Input((length, width))
        attended = keras.layers.MultiHeadAttention(heads, width // heads)(x, x)
        y = keras.layers.LayerNormalization()(x + attended)
        hidden = keras.layers.Dense(4 * width, activation="gelu")(y)
        y = keras.layers.LayerNormalization()(y + keras.layers.Dense(width)(hidden))
        model = keras.Model(x, y)
        batch = tf.random.normal([8, length, width])

        @tf.function
        def forward(batch):
            return model(batch, training=False)

        @tf.function
        def gradients(batch):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(batch, training=True) ** 2)
            return tape.gradient(loss, model.trainable_variables)

        (gradients if training else forward)(batch)


def transformer_block_training() -> None:
    """The same block's gradients."""
    transformer_block(training=True)


def efficientnet_block() -> None:
    """An inverted residual with squeeze and excitation, as `keras.applications` builds it, in
    inference.
    """
    import keras
    import tensorflow as tf

    channels, expanded = 24, 144
    layers = keras.layers
    with tf.device("/device:WGPU:0"):
        inputs = keras.Input((28, 28, channels))
        x = layers.Conv2D(expanded, 1, padding="same", use_bias=False)(inputs)
        x = layers.Activation("swish")(layers.BatchNormalization()(x))
        x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(x)
        x = layers.Activation("swish")(layers.BatchNormalization()(x))
        squeezed = layers.Reshape((1, 1, expanded))(layers.GlobalAveragePooling2D()(x))
        squeezed = layers.Conv2D(6, 1, padding="same", activation="swish")(squeezed)
        x = layers.multiply(
            [x, layers.Conv2D(expanded, 1, padding="same", activation="sigmoid")(squeezed)]
        )
        x = layers.BatchNormalization()(
            layers.Conv2D(channels, 1, padding="same", use_bias=False)(x)
        )
        model = keras.Model(inputs, layers.add([x, inputs]))
        batch = tf.random.normal([8, 28, 28, channels])
        tf.function(lambda batch: model(batch, training=False))(batch)


def nodes(picture: str) -> int:
    """How many nodes a picture says that its graph has."""
    return int(re.search(r": (?:the first \d+ of )?(\d+) nodes", picture)[1])


def draw(block: str, title: str) -> None:
    """Writes a block's pictures: the largest graph as TensorFlow gave it first, and as the
    optimizer left it last.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, __file__, block],
            env={**os.environ, "TF_WGPU_DUMP": folder},
            check=True,
        )
        dumps = sorted(Path(folder).glob("*/graphs/*_before.svg"))
        sizes = {dump: nodes(dump.read_text(encoding="utf-8")) for dump in dumps}
        first = max(dumps, key=lambda dump: sizes[dump])
        # TensorFlow runs the optimizer twice on a graph; the second run comes next.
        index = dumps.index(first)
        last = dumps[min(index + 1, len(dumps) - 1)]
        PICTURES.mkdir(exist_ok=True)
        for source, when in (
            (first, "before"),
            (Path(str(last).replace("_before", "_after")), "after"),
        ):
            picture = source.read_text(encoding="utf-8").replace(
                source.stem + ":", f"{title}, {when} optimization:"
            )
            (PICTURES / f"{block}_{when}.svg").write_text(picture, encoding="utf-8")
            print(f"{block}, {when}: {nodes(picture)} nodes")


def main() -> None:
    """Draws all blocks, or runs the one that is named."""
    if len(sys.argv) > 1:
        globals()[sys.argv[1]]()
        return
    for block, title in BLOCKS.items():
        draw(block, title)


if __name__ == "__main__":
    main()
