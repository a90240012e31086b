"""Models and variables leave WGPU and come back: checkpoints, SavedModel, Keras files, custom
training loops.
"""

import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, python


class Affine(tf.Module):
    """A module with variables and a signature."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.reshape(tf.range(6.0), (3, 2)), name="w")
        self.calls = tf.Variable(0, dtype=tf.int64, trainable=False, name="calls")

    @tf.function(input_signature=[tf.TensorSpec((None, 3), tf.float32)])
    def __call__(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Multiplies, and counts."""
        self.calls.assign_add(1)
        return {"y": tf.nn.relu(tf.matmul(x, self.w) - 1.0)}


X = np.array([[1, -2, 3], [0.5, 0, -1]], "float32")


def expected() -> np.ndarray:
    return np.maximum(X @ np.arange(6, dtype="float32").reshape(3, 2) - 1, 0)


def test_a_checkpoint_restores_variables(tmp_path):
    with tf.device(WGPU):
        v, n = tf.Variable([1.5, -2.5]), tf.Variable([3, 4], dtype=tf.int64)
        path = tf.train.Checkpoint(v=v, n=n).save(str(tmp_path / "checkpoint"))
        v.assign([0.0, 0.0])
        n.assign([0, 0])
        tf.train.Checkpoint(v=v, n=n).restore(path).assert_consumed()
        assert "WGPU:0" in v.device
    assert v.numpy().tolist() == [1.5, -2.5]
    assert n.numpy().tolist() == [3, 4]
    with tf.device(CPU):
        on_cpu = tf.Variable([0.0, 0.0])
    tf.train.Checkpoint(v=on_cpu).restore(path).expect_partial()
    assert on_cpu.numpy().tolist() == [1.5, -2.5]


def run_in_a_new_process(folder: Path, visible: str | None) -> np.ndarray:
    """Loads a SavedModel and calls it, on WGPU or, with the devices hidden, on the CPU."""
    ran = python(
        f"""
        import json, numpy as np, tensorflow as tf
        model = tf.saved_model.load({str(folder)!r})
        y = model.signatures["serving_default"](x=tf.constant({X.tolist()}))["y"]
        print(json.dumps([y.device.split("device:")[1], y.numpy().tolist()]))
        """,
        TF_WGPU_VISIBLE_DEVICES=visible,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    device, y = json.loads(ran.stdout.splitlines()[-1])
    assert device == ("WGPU:0" if visible is None else "CPU:0")
    return np.array(y, "float32")


def test_a_saved_model_runs_on_the_cpu_and_back(tmp_path):
    module = Affine()
    assert_close(module(tf.constant(X))["y"], expected())
    tf.saved_model.save(module, str(tmp_path / "wgpu"), signatures=module.__call__)
    assert_close(run_in_a_new_process(tmp_path / "wgpu", visible=""), expected())
    assert_close(run_in_a_new_process(tmp_path / "wgpu", visible=None), expected())


def test_a_saved_model_of_the_cpu_runs_on_wgpu(tmp_path):
    with tf.device(CPU):
        module = Affine()
        tf.saved_model.save(module, str(tmp_path / "cpu"), signatures=module.__call__)
    loaded = tf.saved_model.load(str(tmp_path / "cpu"))
    y = loaded(tf.constant(X))["y"]
    assert "WGPU:0" in y.device
    assert_close(y, expected())
    assert int(loaded.calls.numpy()) == 1


@pytest.fixture
def soft_placement():
    """Keras's fit has an input pipeline, which runs on the CPU."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


def small_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((6, 6, 2)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )


@pytest.mark.usefixtures("soft_placement")
def test_a_keras_model_and_its_optimizer_continue_after_loading(tmp_path):
    rng = np.random.default_rng(0)
    x, y = (
        rng.normal(size=(32, 6, 6, 2)).astype("float32"),
        rng.normal(size=(32, 3)).astype("float32"),
    )
    keras.utils.set_random_seed(1)
    model = small_model()
    model.compile("adam", "mse")
    model.fit(x, y, epochs=2, verbose=0, shuffle=False)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for ours, theirs in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)
    assert int(loaded.optimizer.iterations.numpy()) == 2
    first = model.fit(x, y, epochs=1, verbose=0, shuffle=False).history["loss"]
    second = loaded.fit(x, y, epochs=1, verbose=0, shuffle=False).history["loss"]
    np.testing.assert_allclose(first, second, rtol=1e-5)


def test_an_exported_keras_model_serves_on_both(tmp_path):
    keras.utils.set_random_seed(1)
    model = small_model()
    x = np.random.default_rng(0).normal(size=(4, 6, 6, 2)).astype("float32")
    want = model(x).numpy()
    model.export(tmp_path / "export", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "export"))
    assert_close(served.serve(x), want, rtol=1e-4, atol=1e-5)
    ran = python(
        f"""
        import numpy as np, tensorflow as tf
        x = np.random.default_rng(0).normal(size=(4, 6, 6, 2)).astype("float32")
        served = tf.saved_model.load({str(tmp_path / "export")!r})
        np.save({str(tmp_path / "cpu.npy")!r}, served.serve(x))
        """,
        TF_WGPU_VISIBLE_DEVICES="-1",
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert_close(np.load(tmp_path / "cpu.npy"), want, rtol=1e-4, atol=1e-5)


def test_a_custom_training_loop():
    """GradientTape, gradient clipping, an Adam step and a metric, in one tf.function."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(64, 5)).astype("float32"), rng.integers(0, 2, size=64)

    def train(device: str) -> tuple[list[float], float]:
        keras.utils.set_random_seed(4)
        with tf.device(device):
            model = keras.Sequential(
                [keras.layers.Input((5,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(2)]
            )
            optimizer = keras.optimizers.Adam(0.02)
            optimizer.build(model.trainable_variables)
            accuracy = keras.metrics.SparseCategoricalAccuracy()
            loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

            @tf.function
            def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
                with tf.GradientTape() as tape:
                    logits = model(x, training=True)
                    loss = loss_of(y, logits)
                gradients = tape.gradient(loss, model.trainable_variables)
                gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
                optimizer.apply_gradients(zip(gradients, model.trainable_variables))
                accuracy.update_state(y, logits)
                return loss

            losses = [float(step(tf.constant(x), tf.constant(y))) for _ in range(40)]
            return losses, float(accuracy.result())

    losses, accuracy = train(WGPU)
    cpu_losses, cpu_accuracy = train(CPU)
    assert losses[-1] < 0.9 * losses[0]
    np.testing.assert_allclose(losses, cpu_losses, rtol=5e-3)
    assert abs(accuracy - cpu_accuracy) < 0.02
