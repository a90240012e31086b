"""Loading and quantizing weights: beside the weights, the device has copies of one layer at a time,
never of the whole model.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import DEVICE, WGPU

#: Layers of equal size, and a larger one like a language model's embeddings.
LAYERS, WIDTH, VOCABULARY = 8, 256, 4096


def model_of(seed: int) -> keras.Model:
    with tf.device(WGPU):
        keras.utils.set_random_seed(seed)
        x = inputs = keras.Input((None,), dtype="int32")
        x = keras.layers.Embedding(VOCABULARY, WIDTH, name="embedding")(x)
        for i in range(LAYERS):
            x = keras.layers.Dense(WIDTH, name=f"dense_{i}")(x)
        return keras.Model(inputs, x)


def sizes(model: keras.Model) -> list[int]:
    return [int(np.prod(v.shape)) * 4 for v in model.variables]


def peak_of(call) -> int:
    """The most memory of the device while a call runs."""
    tf.config.experimental.reset_memory_stats(DEVICE)
    with tf.device(WGPU):
        call()
    return tf.config.experimental.get_memory_info(DEVICE)["peak"]


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """A file in the format of safetensors: a header's length, the header, the bytes."""
    header, at = {}, 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            file.write(array.tobytes())


def read_safetensors(path: Path):
    """The tensors of a file one after the other, as `safetensors.safe_open` gives them: views of
    the mapped file.
    """
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    data = np.memmap(path, mode="r", offset=8 + length)
    for name, told in header.items():
        begin, end = told["data_offsets"]
        yield name, data[begin:end].view("<f4").reshape(told["shape"])


@pytest.mark.own_process
@pytest.mark.parametrize("suffix", ["weights.h5", "keras", "safetensors"])
def test_loading_needs_one_more_copy_of_the_largest_weight(suffix, tmp_path):
    path = tmp_path / f"model.{suffix}"
    saved, loaded = model_of(1), model_of(2)
    want = saved.get_weights()

    def load() -> None:
        if suffix == "safetensors":
            variables = {v.path: v for v in loaded.variables}
            for name, array in read_safetensors(path):
                variables[name].assign(array)
        else:
            loaded.load_weights(path)

    if suffix == "safetensors":
        write_safetensors(path, {v.path: a for v, a in zip(loaded.variables, want)})
    elif suffix == "keras":
        saved.save(path)
    else:
        saved.save_weights(path)
    del saved
    before = tf.config.experimental.get_memory_info(DEVICE)["current"]
    peak = peak_of(load) - before
    # TensorFlow rounds sizes up to 256 bytes.
    assert peak <= max(sizes(loaded)) + 4096, (peak, max(sizes(loaded)))
    assert all(np.array_equal(got, w) for got, w in zip(loaded.get_weights(), want))


@pytest.mark.own_process
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantizing_goes_layer_by_layer(mode):
    """The device never has more than the float weights and two copies of a layer."""
    model = model_of(3)
    all_ = sizes(model)
    before = tf.config.experimental.get_memory_info(DEVICE)["current"]
    peak = peak_of(lambda: model.quantize(mode)) - before
    after = tf.config.experimental.get_memory_info(DEVICE)["current"]
    assert peak < 2 * max(all_), (peak, max(all_))
    # float32 takes four times the bytes of int8. Scales take the rest.
    assert before - after > (0.7 if mode == "int8" else 0.8) * sum(all_)
