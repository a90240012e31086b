"""Long runs: memory stays flat over many training steps, and two processes train on one device at
the same time.
"""

import concurrent.futures
import json

import pytest
from support import python

pytestmark = pytest.mark.nightly

STEPS = 200

# Trains a small convolutional model with a custom loop, which reports the numbers that `fit` hides.
TRAINING = """
    import json, resource
    import keras
    import numpy as np
    import tensorflow as tf
    from sklearn.datasets import load_digits

    tf.config.set_soft_device_placement(False)
    keras.utils.set_random_seed({seed})
    digits = load_digits()
    x = (digits.images[..., None] / 16.0).astype("float32")
    y = digits.target.astype("int64")
    model = keras.Sequential([
        keras.layers.Input((8, 8, 1)),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(10),
    ])
    optimizer = keras.optimizers.Adam(0.01)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    def on_device():
        return tf.config.experimental.get_memory_info("WGPU:0")["current"]

    losses, device_bytes, host_bytes = [], [], []
    with tf.device("WGPU:0"):
        for n in range({steps}):
            at = n * 32 % (len(x) - 32)
            losses.append(float(step(tf.constant(x[at:at + 32]), tf.constant(y[at:at + 32]))))
            device_bytes.append(on_device())
            host_bytes.append(resident())
    print("RESULT" + json.dumps(dict(losses=losses, device=device_bytes, host=host_bytes)))
"""


def train(seed: int, steps: int = STEPS) -> dict:
    """Trains in a new process and returns the measurements after each step."""
    done = python(TRAINING.replace("{seed}", str(seed)).replace("{steps}", str(steps)), timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [text for text in done.stdout.splitlines() if text.startswith("RESULT")]
    return json.loads(line.removeprefix("RESULT"))


def assert_learned(losses: list[float]) -> None:
    """The loss starts near ln 10 and falls well below it."""
    head, tail = sum(losses[:5]) / 5, sum(losses[-20:]) / 20
    assert head > 1.5, losses[:5]
    assert tail < 0.5 * head, losses[-20:]


def test_memory_stays_flat_over_many_steps() -> None:
    run = train(seed=1)
    assert_learned(run["losses"])
    # The first steps build variables' slots, caches and pipelines.
    settled = run["device"][20:]
    assert max(settled) == min(settled), f"device bytes after each step: {sorted(set(settled))}"
    growth = run["host"][-1] - run["host"][50]
    assert growth < 16 << 20, f"the process grew by {growth} bytes in {STEPS - 50} steps"


def test_two_processes_train_at_once() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(train, (1, 2)))
    for run in runs:
        assert_learned(run["losses"])
    assert runs[0]["losses"] != runs[1]["losses"]
