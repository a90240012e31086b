"""Training steps of real models under Keras's TensorBoard callback, and xprof's conversion of
traces.

`python profiled.py MODEL FOLDER` writes a trace into a folder; it needs only TensorFlow and the
plug-in, so that `make profiles` can take traces with other versions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np

#: Steps of a run, and those that are profiled.
STEPS, PROFILED = 5, (3, 5)


def resnet50() -> tuple[keras.Model, np.ndarray, np.ndarray]:
    """ResNet50 for small images."""
    rng = np.random.default_rng(2)
    model = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=10)
    images = rng.normal(size=(2 * STEPS, 32, 32, 3)).astype("float32")
    return model, images, rng.integers(0, 10, 2 * STEPS)


def transformer() -> tuple[keras.Model, np.ndarray, np.ndarray]:
    """Two blocks of a transformer over words, with a prediction for each sequence."""
    layers, rng = keras.layers, np.random.default_rng(2)
    words = layers.Input((32,), dtype="int32")
    x = layers.Embedding(100, 64)(words)
    for _ in range(2):
        normal = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 16)(normal, normal)])
        normal = layers.LayerNormalization()(x)
        wide = layers.Dense(256, activation="gelu")(normal)
        x = layers.Add()([x, layers.Dense(64)(wide)])
    classes = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling1D()(x))
    return (
        keras.Model(words, classes),
        rng.integers(0, 100, (4 * STEPS, 32)).astype("int32"),
        rng.integers(0, 10, 4 * STEPS),
    )


MODELS = {"resnet50": resnet50, "transformer": transformer}


def trace(name: str, folder: Path) -> Path:
    """The trace of some training steps of a model, whose shaders were compiled before."""
    keras.utils.set_random_seed(3)
    model, x, y = MODELS[name]()
    model.compile("adam", "sparse_categorical_crossentropy")
    batch = len(x) // STEPS
    model.fit(x, y, batch_size=batch, verbose=0)
    callback = keras.callbacks.TensorBoard(folder, profile_batch=PROFILED, write_graph=False)
    model.fit(x, y, batch_size=batch, verbose=0, callbacks=[callback])
    return found(folder)


def found(folder: Path) -> Path:
    """The trace in a folder."""
    (path,) = folder.rglob("*.xplane.pb")
    return path


def converted(path: Path, tool: str) -> Any:
    """xprof's conversion of a trace for one of its pages."""
    from xprof.convert import raw_to_tool_data

    text, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], tool, {})
    return json.loads(text)


def rows(table: Any) -> list[dict[str, Any]]:
    """A table's rows by the names of its columns."""
    names = [column["id"] for column in table.get("cols", [])]
    return [dict(zip(names, (cell["v"] for cell in row["c"]))) for row in table.get("rows", [])]


if __name__ == "__main__":
    print(trace(sys.argv[1], Path(sys.argv[2])))
