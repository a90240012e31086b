"""A slow GPU with a watchdog: no submission is so long that it loses the device, and the numbers
stay. The fault layer (tests/fault_layer) plays that GPU. The driver of the tests is a hundred to a
thousand times slower than a GPU; the layer makes it three times slower still.
"""

import pytest
from fault_layer import behind
from support import python

pytestmark = pytest.mark.nightly

PROGRAM = """
    import ctypes
    import os

    import keras
    import numpy as np
    import tensorflow as tf
    from keras import layers

    layer = ctypes.CDLL(os.environ["TF_WGPU_FAULT_LAYER"])
    layer.fault_layer_longest.restype = ctypes.c_uint64
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 1024)).astype("float32")
    y = rng.integers(0, 4, 64)
    losses = []
    for device in ("CPU:0", "WGPU:0"):
        keras.utils.set_random_seed(1)
        with tf.device(device):
            model = keras.Sequential(
                [*(layers.Dense(2048, activation="relu") for _ in range(4)), layers.Dense(4)]
            )
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("sgd", loss)
            if device == "WGPU:0":
                layer.fault_layer_slow(3)
            losses.append([float(model.train_on_batch(x, y)) for _ in range(4)])
    np.testing.assert_allclose(*losses, rtol=1e-3)
    print("longest", layer.fault_layer_longest())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables for a process behind the layer."""
    return {**behind(tmp_path_factory.mktemp("layer")), "TF_WGPU_CACHE": "off"}


def test_a_training_passes_the_watchdog(environment: dict[str, str]) -> None:
    # A step takes such a GPU seconds, and its longest dispatch a few hundred milliseconds.
    done = python(PROGRAM, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("longest"))
    print(line)
    assert 0 < int(line.split()[1]) < 2000
