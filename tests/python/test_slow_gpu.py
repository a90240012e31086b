"""A GPU far slower than the driver of the tests, with a watchdog: no submission is so long that it
loses the device, and the numbers stay right. The fault layer (tests/fault_layer) simulates that
GPU.
"""

import pytest
from fault_layer import behind
from support import python

pytestmark = pytest.mark.nightly

# As in the layer, in milliseconds.
WATCHDOG = 2000
STEPS = 4
# Operations on floats that the GPU does in a second, in large products: a thousandth of a usual
# GPU's, and a hundredth of those of the slowest supported one.
RATE = 4e9
# The examples of a step.
EXAMPLES = {"dense": 256, "convolutional": 160, "recurrent": 160}

PROGRAM = """
    import ctypes
    import os

    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    layer = ctypes.CDLL(os.environ["TF_WGPU_FAULT_LAYER"])
    layer.fault_layer_longest.restype = ctypes.c_uint64
    layer.fault_layer_total.restype = ctypes.c_uint64
    rng = np.random.default_rng(1)
    MODELS = {
        "dense": lambda: [layers.Dense(1024, activation="relu") for _ in range(4)],
        "convolutional": lambda: [
            layers.Reshape((32, 32, 1)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
        ],
        "recurrent": lambda: [layers.Reshape((64, 16)), layers.LSTM(128)],
    }
    examples = int(os.environ["EXAMPLES"])
    x = rng.normal(size=(examples, 1024)).astype("float32")
    y = rng.integers(0, 4, examples)

    def factor():
        # How many times slower than the driver the GPU is, by the time of products.
        layer.fault_layer_slow(1)
        with tf.device("WGPU:0"):
            a = tf.constant(rng.normal(size=(512, 512)).astype("float32"))
            float(tf.matmul(a, a)[0, 0])
            before = layer.fault_layer_total()
            for _ in range(8):
                a = tf.matmul(a, a) / 512.0
            float(a[0, 0])
        seconds = (layer.fault_layer_total() - before) / 1000
        return max(1, round(8 * 2 * 512**3 / float(os.environ["RATE"]) / seconds))

    losses = []
    for device in ("CPU:0", "WGPU:0"):
        keras.utils.set_random_seed(1)
        with tf.device(device):
            model = keras.Sequential([*MODELS[os.environ["MODEL"]](), layers.Dense(4)])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss)
            if device == "WGPU:0":
                layer.fault_layer_slow(factor())
            # A small step shows how slow the GPU is: a hundred times slower than those that the
            # first submissions are cut for.
            model.train_on_batch(x[:8], y[:8])
            steps = range(int(os.environ["STEPS"]))
            losses.append([float(model.train_on_batch(x, y)) for _ in steps])
    np.testing.assert_allclose(*losses, rtol=1e-3)
    print("milliseconds", layer.fault_layer_total(), layer.fault_layer_longest())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for a process behind the layer, with the kernels of a GPU: a software adapter has
    no watchdog.
    """
    return {
        **behind(tmp_path_factory.mktemp("layer")),
        "TF_WGPU_CACHE": "off",
        "TF_WGPU_PROFILE": "intel",
    }


@pytest.mark.parametrize("model", ["dense", "convolutional", "recurrent"])
def test_a_training_passes_the_watchdog(environment: dict[str, str], model: str) -> None:
    numbers = {"STEPS": STEPS, "RATE": RATE, "EXAMPLES": EXAMPLES[model]}
    done = python(PROGRAM, **environment, MODEL=model, **{k: str(v) for k, v in numbers.items()})
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("milliseconds"))
    print(line)
    total, longest = map(int, line.split()[1:])
    assert total > 2 * WATCHDOG, "the training is longer than any submission may be"
    assert 0 < longest < WATCHDOG
