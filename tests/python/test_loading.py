"""Loading and quantizing weights: beside the weights, the device has a piece of one weight at a
time, never a copy of it.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, DEVICE, WGPU
from tensorflow_wgpu._weights import PIECE

#: Layers of equal size, and a larger one like a language model's embeddings.
LAYERS, WIDTH, VOCABULARY = 8, 256, 1 << 16


def model_of(seed: int) -> keras.Model:
    with tf.device(WGPU):
        keras.utils.set_random_seed(seed)
        x = inputs = keras.Input((None,), dtype="int32")
        x = keras.layers.Embedding(VOCABULARY, WIDTH, name="embedding")(x)
        for i in range(LAYERS):
            x = keras.layers.Dense(WIDTH, name=f"dense_{i}")(x)
        return keras.Model(inputs, x)


def sizes(model: keras.Model) -> list[int]:
    return [int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in model.variables]


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_value_beyond_one_binding_is_assigned(dtype):
    """A software adapter binds 128 MiB at once, and WebGPU promises no more."""
    shape = (3 * 47, (1 << 20) // tf.as_dtype(dtype).size)
    value = np.arange(np.prod(shape), dtype="uint64").reshape(shape) % 101
    value = tf.cast(value, dtype).numpy()
    with tf.device(WGPU):
        variable = keras.Variable(tf.zeros(shape, dtype), dtype=dtype, trainable=False)
        variable.assign(value)
        rows = [0, 1, 66, 67, 139, 140]
        for row in rows:
            np.testing.assert_array_equal(variable._value[row].numpy(), value[row])


@pytest.mark.own_process
@pytest.mark.parametrize("suffix", ["weights.h5", "keras", "safetensors"])
def test_loading_needs_a_piece_of_a_weight_at_a_time(suffix, tmp_path):
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
    # TensorFlow gives out free memory of up to twice the size that is asked for.
    assert max(sizes(loaded)) > 4 * PIECE
    assert peak <= 2 * PIECE, (peak, max(sizes(loaded)))
    assert all(np.array_equal(got, w) for got, w in zip(loaded.get_weights(), want))


@pytest.mark.own_process
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantizing_needs_no_copy_of_a_layer(mode):
    """The device has the float weights and pieces of a layer's codes at most, and afterwards the
    packed weights, a tenth, and a piece.
    """
    model = model_of(3)
    floats = sum(sizes(model))
    before = tf.config.experimental.get_memory_info(DEVICE)["current"]
    peak = peak_of(lambda: model.quantize(mode)) - before
    after = tf.config.experimental.get_memory_info(DEVICE)["current"]
    packed = sum(sizes(model))
    assert packed < floats / (3.9 if mode == "int8" else 7)
    assert peak <= 2 * PIECE, (peak, floats)
    assert after <= 1.1 * packed + PIECE, (after, packed)


@pytest.mark.own_process
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_weights_are_those_of_the_cpu(mode):
    """The layers' variables stay on the device, and hold Keras's own numbers."""
    model, here = model_of(4), {}
    for device in (CPU, WGPU):
        with tf.device(device):
            twin = keras.models.clone_model(model)
            twin.set_weights(model.get_weights())
            twin.quantize(mode)
        here[device] = twin
    assert {v.value.device.split(":")[-2] for v in here[WGPU].variables} == {"WGPU"}
    for got, want in zip(here[WGPU].variables, here[CPU].variables, strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy(), err_msg=got.path)


@pytest.mark.own_process
def test_a_value_of_another_shape_is_refused():
    model = model_of(5)
    with pytest.raises(ValueError, match="shape"):
        model.layers[1].embeddings.assign(np.zeros((VOCABULARY, WIDTH + 1), "float32"))
