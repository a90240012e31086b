"""Graphs of real models for the fuzz targets: `python fuzz/corpus.py` writes them below
fuzz/corpus.

For `graph_text` what the optimizer gets in training, for `graph_def` the functions' GraphDefs with
shapes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

os.environ["TF_WGPU_OPTIMIZER"] = f"dump={tempfile.mkdtemp()}"

import keras
import tensorflow as tf
import tensorflow_wgpu  # noqa: F401

ROOT = Path(__file__).parent / "corpus"
DUMP = Path(os.environ["TF_WGPU_OPTIMIZER"].removeprefix("dump="))
# Larger inputs make the fuzzer slow.
LARGEST = 400_000


def models() -> dict[str, tuple[keras.Model, tuple[int, ...]]]:
    """Small models with every kind of layer that passes look for, and their inputs' shapes."""
    layers = keras.layers
    dense = keras.Sequential(
        [keras.Input((8,)), layers.Dense(16, "gelu"), layers.LayerNormalization(), layers.Dense(4)]
    )
    convolutions = keras.Sequential(
        [
            keras.Input((12, 12, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.DepthwiseConv2D(3, activation="swish"),
            layers.MaxPooling2D(),
            layers.Dropout(0.1),
            layers.Flatten(),
            layers.Dense(4),
        ]
    )
    x = inputs = keras.Input((6, 16))
    x = layers.MultiHeadAttention(2, 8)(x, x) + x
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    attention = keras.Model(inputs, layers.Dense(4)(x))
    recurrent = keras.Sequential([keras.Input((5, 6)), layers.LSTM(7), layers.Dense(4)])
    return {
        "dense": (dense, (8,)),
        "convolutions": (convolutions, (12, 12, 3)),
        "attention": (attention, (6, 16)),
        "recurrent": (recurrent, (5, 6)),
    }


def write(folder: str, name: str, data: bytes) -> None:
    """A file of the corpus, unless it is too large."""
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    if len(data) <= LARGEST:
        (ROOT / folder / name).write_bytes(data)


for name, (model, shape) in models().items():
    for optimizer in ["adam", "sgd"]:
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(tf.random.normal((6, *shape)), tf.zeros(6, tf.int32), batch_size=4, verbose=0)
    forward = tf.function(model).get_concrete_function(tf.TensorSpec((4, *shape)))
    definition = forward.graph.as_graph_def(add_shapes=True)
    for node in definition.node:
        node.device = "/job:localhost/replica:0/task:0/device:WGPU:0"
    write("graph_def", name, definition.SerializeToString())

for file in DUMP.glob("*_before.txt"):
    write("graph_text", file.name, file.read_bytes())
shutil.rmtree(DUMP)
print(
    *(f"{folder.name}: {len(list(folder.iterdir()))} graphs" for folder in ROOT.iterdir()), sep="\n"
)
