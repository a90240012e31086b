"""Trainings in which the driver refuses one shader: for each shader of the training, the losses
stay equal.

The fault layer (tests/fault_layer) simulates the driver. A device compiles each shader once, so
each training has a device of its own; the devices of a process are one adapter. A sample of the
shaders runs by default; `TF_WGPU_FAULTS=all`, which `make faults` sets, refuses each one.
"""

import os

import pytest
from fault_layer import behind
from support import python

pytestmark = pytest.mark.nightly

#: The trainings of a process, each of which refuses another shader.
DEVICES = 16
#: Of how many shaders a sample refuses one.
SAMPLED = 8
STEP = 1 if os.environ.get("TF_WGPU_FAULTS") == "all" else SAMPLED

PROGRAM = """
    import ctypes
    import os

    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    UNKNOWN, ALL = -13, 0
    layer = ctypes.CDLL(os.environ["TF_WGPU_FAULT_LAYER"])
    layer.fault_layer_refuse.argtypes = [
        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int32
    ]
    layer.fault_layer_refused.restype = ctypes.c_uint64

    def convolutional():
        x = keras.Input((10, 10, 3))
        y = layers.Conv2D(8, 3, activation="relu")(x)
        y = layers.MaxPooling2D()(layers.BatchNormalization()(y))
        y = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3)(y))
        return keras.Model(x, layers.Dense(4)(y))

    def transformer():
        x = keras.Input((10,), dtype="int32")
        y = layers.Embedding(16, 16)(x)
        y = layers.LayerNormalization()(y + layers.MultiHeadAttention(2, 8)(y, y))
        y += layers.Dense(16)(layers.Dense(32, activation="gelu")(y))
        return keras.Model(x, layers.Dense(4)(layers.GlobalAveragePooling1D()(y)))

    def recurrent():
        x = keras.Input((10,), dtype="int32")
        y = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(layers.Embedding(16, 8)(x))
        return keras.Model(x, layers.Dense(4)(layers.GRU(8)(y)))

    MODEL = {"convolutional": convolutional, "transformer": transformer, "recurrent": recurrent}
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 8)
    images = rng.uniform(size=(8, 10, 10, 3)).astype("float32")
    words = rng.integers(0, 16, (8, 10)).astype("int32")
    name = os.environ["MODEL"]

    def losses(device):
        keras.utils.set_random_seed(1)
        with tf.device(device):
            model = MODEL[name]()
            optimizer = keras.optimizers.Adam(0.01)

            @tf.function
            def step(x, y):
                with tf.GradientTape() as tape:
                    logits = model(x, training=True)
                    each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
                    loss = tf.reduce_mean(each)
                gradients = tape.gradient(loss, model.trainable_variables)
                optimizer.apply(gradients, model.trainable_variables)
                return loss

            x = tf.constant(images if name == "convolutional" else words)
            y = tf.constant(labels)
            return [float(step(x, y)) for _ in range(3)]

    wanted = losses("CPU:0")
    number = int(os.environ["FIRST"])
    for device in tf.config.list_logical_devices("WGPU"):
        layer.fault_layer_refuse(number, 1, UNKNOWN, ALL)
        np.testing.assert_allclose(losses(device.name), wanted, rtol=1e-4)
        if layer.fault_layer_refused() == 0:
            print("no shader has the number", number)
            break
        number += int(os.environ["STEP"])
    print("refused up to", number)
"""


@pytest.mark.parametrize("model", ["convolutional", "transformer", "recurrent"])
def test_the_losses_stay_equal(model, tmp_path):
    environment = {
        **behind(tmp_path),
        "TF_WGPU_CACHE": "off",
        # The kernels of GPUs. Those of software adapters are refused in other tests.
        "TF_WGPU_PROFILE": "nvidia",
        "TF_WGPU_VISIBLE_DEVICES": ",".join(["0"] * DEVICES),
        "MODEL": model,
        "STEP": str(STEP),
    }
    first = 1
    while True:
        done = python(PROGRAM, timeout=900, **environment, FIRST=str(first))
        assert done.returncode == 0, done.stderr[-3000:]
        last = int(done.stdout.split()[-1])
        # Each refusal has its line.
        refused = (last - first) // STEP
        assert done.stderr.count("refused it (ERROR_UNKNOWN)") == refused
        if "no shader has the number" in done.stdout:
            break
        first = last
    assert last > DEVICES, "the model has shaders"
