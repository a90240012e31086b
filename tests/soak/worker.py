"""One process of the soak test: trains, retraces, saves and loads in rounds, and prints its figures
after each.

Each round builds a model anew, fits it with batches of changing shapes, steps it by a function that
is traced again for every shape, saves it and loads it back. A line of JSON on stdout tells how much
the process holds after the round.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
import tensorflow_wgpu

# The number of rounds after which everything has been seen once is that of kinds of models times
# shapes.
SIZES = [(8, 16), (12, 9), (5, 24)]
# Enough for a round to be mostly training: TensorFlow keeps 17 MB for each round, whatever it
# trains.
EPOCHS = 60
# Bytes, a power of two.
REGION = 64 << 20


def convolutional() -> keras.Model:
    """Any image size; batch normalization, dropout and pooling."""
    return keras.Sequential(
        [
            keras.Input((None, None, 3)),
            keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.MaxPooling2D(),
            keras.layers.SeparableConv2D(16, 3, padding="same", activation="gelu"),
            keras.layers.Dropout(0.2),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )


def attention() -> keras.Model:
    """Any length; attention and layer normalization."""
    inputs = keras.Input((None, 16))
    x = keras.layers.MultiHeadAttention(2, 8)(inputs, inputs)
    x = keras.layers.LayerNormalization()(x + inputs)
    x = keras.layers.Dense(32, activation="gelu")(x)
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.GlobalAveragePooling1D()(x)))


def recurrent() -> keras.Model:
    """Any length; a loop on the device with lists of its steps."""
    return keras.Sequential([keras.Input((None, 8)), keras.layers.LSTM(12), keras.layers.Dense(4)])


KINDS = {
    "convolutional": (convolutional, lambda batch, size: (batch, size, size, 3)),
    "attention": (attention, lambda batch, size: (batch, size, 16)),
    "recurrent": (recurrent, lambda batch, size: (batch, size, 8)),
}
CYCLE = len(KINDS) * len(SIZES)


def data(shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs whose class shows in their mean."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, shape[0])
    x = rng.normal(size=shape) + labels.reshape(-1, *[1] * (len(shape) - 1))
    return x.astype("float32"), labels.astype("int64")


def play(number: int, seed: int, directory: Path, device: str) -> dict[str, float]:
    """Plays one round. Fails if a saved model behaves differently from the model, or if the model
    is not on the device.
    """
    kind = list(KINDS)[number % len(KINDS)]
    batch, size = SIZES[number // len(KINDS) % len(SIZES)]
    make, shape_of = KINDS[kind]
    keras.utils.set_random_seed(seed + number)
    model = make()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss_of)
    # The last batch is a partial one.
    x, y = data(shape_of(6 * batch + 3, size), number)
    history = model.fit(x, y, batch_size=batch, epochs=EPOCHS, verbose=0)

    places = {v.value.device for v in model.trainable_variables}
    assert all(p.endswith(device) for p in places), f"variables are on {places}"

    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    for k in (1, 2, 3):
        by_hand = float(step(*map(tf.constant, data(shape_of(batch + k, size + k), k))))
    want = model.predict(x[:4], verbose=0)
    file = directory / "model.keras"
    model.save(file)
    loaded = keras.models.load_model(file)
    np.testing.assert_allclose(loaded.predict(x[:4], verbose=0), want, rtol=1e-4, atol=1e-5)
    checkpoint = tf.train.Checkpoint(model=model)
    checkpoint.read(checkpoint.write(str(directory / "checkpoint"))).assert_consumed()
    if number % CYCLE < len(KINDS):
        model.export(directory / "exported", verbose=False)
        exported = tf.saved_model.load(directory / "exported")
        np.testing.assert_allclose(
            exported.serve(tf.constant(x[:4])).numpy(), want, rtol=1e-4, atol=1e-5
        )
    assert np.isfinite(by_hand), "the loss of a step by hand"
    return {"first": history.history["loss"][0], "last": history.history["loss"][-1]}


def captured() -> int:
    """Bytes on the device of variables that TensorFlow's graphs hold.

    TensorFlow never frees the graph of a function that applies a Keras optimizer, nor the variables
    that the graph captured, with or without the plug-in.
    """
    graphs = (o for o in gc.get_objects() if isinstance(o, tf.__internal__.FuncGraph))
    handles = {id(t): t for graph in graphs for t, _ in graph.captures if t.dtype == tf.resource}
    total = 0
    for handle in handles.values():
        for value in handle._handle_data.shape_and_type if "WGPU" in handle.device else ():
            size = tf.TensorShape(value.shape).num_elements() * tf.as_dtype(value.dtype).size
            # The allocator rounds to this unit.
            total += -(-size // 256) * 256
    return total


def held() -> dict[str, float]:
    """The memory and objects that the process holds. Memory that malloc keeps for itself is
    released first.
    """
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    figures = {
        "resident": resident,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }
    for counts in (
        tensorflow_wgpu.statistics().values() if tf.config.list_logical_devices("WGPU") else ()
    ):
        figures["device bytes"] = (
            tf.config.experimental.get_memory_info("WGPU:0")["current"] - captured()
        )
        figures |= {"pipelines": counts["pipelines"], "bind groups": counts["bind_groups_held"]}
    return figures


def main() -> None:
    """Plays rounds until the time is over, at least `--rounds`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--device", default="WGPU:0")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    number = 0
    # The first allocation, and a region of TensorFlow's allocator for itself: all rounds share the
    # next region, which is as large. Otherwise their bindings would have new combinations whenever
    # the graphs that TensorFlow never frees fill a region.
    region = (
        tf.raw_ops.Empty(shape=[REGION // 4], dtype=tf.float32)
        if options.device != "CPU:0"
        else None
    )
    # No device is named: WGPU is chosen by placement itself, and datasets have kernels only for the
    # CPU.
    while time.monotonic() < end or number < options.rounds:
        with tempfile.TemporaryDirectory() as directory:
            losses = play(number, options.seed, Path(directory), options.device)
        keras.backend.clear_session()
        print(json.dumps({"round": number, "time": time.time(), **losses, **held()}), flush=True)
        number += 1
    del region


if __name__ == "__main__":
    main()
