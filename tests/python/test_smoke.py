"""The shortest way through everything, for every supported TensorFlow: variables, gradients, Keras training."""

import numpy as np
import tensorflow as tf
from support import CPU, WGPU, python


def train_by_hand(device: str, steps: int) -> tuple[list[float], np.ndarray]:
    x = np.linspace(-1, 1, 64, dtype="float32").reshape(32, 2)
    y = (x @ np.array([[2.0], [-3.0]], "float32") + 0.5).astype("float32")
    with tf.device(device):
        w, b = tf.Variable(tf.ones((2, 1))), tf.Variable(tf.zeros((1,)))

        @tf.function
        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
            for v, g in zip((w, b), tape.gradient(loss, (w, b))):
                v.assign_sub(0.1 * g)
            return loss

        losses = [float(step(tf.constant(x), tf.constant(y))) for _ in range(steps)]
        return losses, np.concatenate([w.numpy().ravel(), b.numpy()])


def test_gradient_descent_takes_the_same_path_as_on_the_cpu():
    losses, weights = train_by_hand(WGPU, 30)
    cpu_losses, cpu_weights = train_by_hand(CPU, 30)
    assert losses[-1] < losses[0] / 4
    np.testing.assert_allclose(losses, cpu_losses, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(weights, cpu_weights, rtol=1e-4, atol=1e-6)


def test_variables_are_assigned_in_place_and_by_value():
    with tf.device(WGPU):
        v = tf.Variable([1.0, 2.0])
        before = v.read_value()
        v.assign_add([1.0, 1.0])
        v.assign_sub([0.5, 0.5])
        assert before.numpy().tolist() == [1.0, 2.0]
        assert v.numpy().tolist() == [1.5, 2.5]
        assert "WGPU:0" in v.device


def test_keras_fits_with_the_default_compile():
    """In a process of its own: nothing but `import` and `fit`, as a user writes it."""
    ran = python(
        """
        import numpy as np, tensorflow as tf
        tf.keras.utils.set_random_seed(0)
        x = np.random.default_rng(0).normal(size=(256, 8, 8, 1)).astype("float32")
        y = (x.mean(axis=(1, 2, 3)) > 0).astype("int64")
        model = tf.keras.Sequential([
            tf.keras.layers.Input((8, 8, 1)), tf.keras.layers.Conv2D(8, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(), tf.keras.layers.Flatten(), tf.keras.layers.Dense(2)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss=loss)
        history = model.fit(x, y, batch_size=32, epochs=6, verbose=0).history["loss"]
        assert history[-1] < 0.7 * history[0], history
        assert model.predict(x[:3], verbose=0).shape == (3, 2)
        assert all("WGPU:0" in v.value.device for v in model.trainable_variables)
        print("trained on", tf.__version__)
        """
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.strip() == f"trained on {tf.__version__}"
