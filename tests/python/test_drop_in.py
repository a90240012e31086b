"""Programs for TensorFlow's GPUs, unchanged, with devices of the type GPU. `make versions` runs it
with `TF_WGPU_DEVICE_TYPE=GPU` on TensorFlows without CUDA. The TensorFlow of `make test-python` has
CUDA's kernels, so conftest.py leaves it out there.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from support import CPU, assert_close, python
from test_distribute import TWO, both, devices


def told(code: str, **env: str) -> list[str]:
    """The lines that a program prints."""
    ran = python(code, **env)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout.splitlines()


def test_tensorflow_finds_a_gpu():
    assert not tf.config.list_physical_devices("WGPU")
    assert [d.name for d in tf.config.list_physical_devices("GPU")] == ["/physical_device:GPU:0"]
    assert tf.test.gpu_device_name() == "/device:GPU:0"
    assert (tf.ones(3) + 1.0).device.endswith("/device:GPU:0")
    with tf.device("/gpu:0"):
        assert tf.Variable(tf.ones(3)).device.endswith("/device:GPU:0")
    assert list(tensorflow_wgpu.statistics()) == ["GPU:0"]
    assert tensorflow_wgpu.report()["device_type"] == "GPU"


def test_memory_is_grown_and_told():
    assert told(
        """
        import tensorflow as tf
        (gpu,) = tf.config.list_physical_devices("GPU")
        tf.config.experimental.set_memory_growth(gpu, True)
        x = tf.ones(1 << 20)
        print(tf.config.experimental.get_memory_info("GPU:0")["current"] >= 1 << 22)
        """
    ) == ["True"]


def test_one_of_two_gpus_is_visible():
    assert told(
        """
        import tensorflow as tf, tensorflow_wgpu
        tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[1], "GPU")
        print([d.name for d in tf.config.list_logical_devices("GPU")])
        print((tf.ones(3) * 2.0).numpy().tolist())
        counts = tensorflow_wgpu.statistics()
        print(counts["GPU:0"]["dispatches"], counts["GPU:1"]["dispatches"] > 0)
        """,
        **TWO,
    ) == ["['/device:GPU:0']", "[2.0, 2.0, 2.0]", "0 True"]


@pytest.mark.parametrize("way", ["prefetch_to_device", "copy_to_device"])
def test_datasets_lie_on_the_gpu(way):
    data = tf.data.Dataset.range(6).map(lambda i: tf.fill([4], tf.cast(i, tf.float32)))
    rows = list(data.batch(2).apply(getattr(tf.data.experimental, way)("/gpu:0")))
    assert all(row.device.endswith("GPU:0") for row in rows)
    assert np.concatenate(rows)[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_mirrored_strategy_trains_on_two_gpus():
    """A tutorial's script: the losses of one device."""
    one, two = both("mirrored.py", "2")
    assert two["devices"] == devices(2)
    for what in ("loss", "evaluation", "prediction"):
        np.testing.assert_allclose(two[what], one[what], rtol=1e-4, atol=1e-5, err_msg=what)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("cell", ["GRU", "LSTM"])
def test_recurrent_layers_take_no_path_for_cudnn(cell, legacy):
    """Keras would give cuDNN's op the gates in MIOpen's order. Our op supports masks and layers
    that run backwards, but not the lengths of ragged rows, which tf_keras has.
    """
    code = f"""
        import numpy as np, tensorflow as tf
        rng = np.random.default_rng(3)
        x = rng.normal(size=(3, 6, 5)).astype("float32")
        mask = tf.sequence_mask([4, 6, 1], 6)

        def compare(call):
            results = []
            for device in ("CPU:0", "GPU:0"):
                with tf.device(device):
                    results.append(tf.function(call)().numpy())
            np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)

        for backwards in (False, True):
            layer = tf.keras.layers.{cell}(4, return_sequences=True, go_backwards=backwards)
            layer.build((None, 6, 5))
            layer.set_weights([rng.normal(size=w.shape) for w in layer.get_weights()])
            compare(lambda: layer(tf.constant(x), mask=mask))
            if {legacy}:
                rows = tf.constant(x.reshape(18, 5)[:11])
                compare(
                    lambda: layer(tf.RaggedTensor.from_row_lengths(rows, [4, 6, 1])).to_tensor()
                )
        print("same")
        """
    assert told(code, TF_USE_LEGACY_KERAS="1" if legacy else "0")[-1] == "same"


def test_mixed_precision_computes_as_on_the_cpu(rng):
    """An image model with normalization, in float16."""
    keras = tf.keras
    x = rng.normal(size=(4, 16, 16, 3)).astype("float32")
    tf.config.set_soft_device_placement(True)
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [
                keras.layers.Input((16, 16, 3)),
                keras.layers.SeparableConv2D(8, 3, padding="same", use_bias=False),
                keras.layers.BatchNormalization(),
                keras.layers.ReLU(),
                keras.layers.GlobalAveragePooling2D(),
                keras.layers.Dense(3, dtype="float32"),
            ]
        )
        got = model.predict(x, verbose=0)
        with tf.device(CPU):
            want = model(tf.constant(x)).numpy()
    finally:
        keras.mixed_precision.set_global_policy("float32")
        tf.config.set_soft_device_placement(False)
    assert_close(got, want, rtol=5e-3, atol=5e-3)


def test_dtensor_shards_a_batch_over_a_mesh_of_gpus():
    """Gradient descent with numpy's results, with a product whose gradient is summed over the
    mesh.
    """
    assert told(
        """
        import numpy as np, tensorflow as tf
        from tensorflow.experimental import dtensor
        mesh = dtensor.create_mesh([("batch", 2)], device_type="GPU")
        whole = dtensor.Layout.replicated(mesh, 2)
        sharded = dtensor.Layout(["batch", dtensor.UNSHARDED], mesh)
        x = np.arange(16, dtype="float32").reshape(4, 4) / 16
        data = dtensor.relayout(dtensor.copy_to_mesh(tf.constant(x), whole), sharded)
        w = dtensor.DVariable(dtensor.call_with_layout(tf.ones, whole, (4, 3)))

        @tf.function
        def step(data):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(tf.matmul(data, w)))
            w.assign_sub(0.01 * tape.gradient(loss, w))
            return loss

        want, losses = np.ones((4, 3)), []
        for _ in range(3):
            y = x @ want
            losses.append((y**2).sum())
            want -= 0.02 * x.T @ y
        np.testing.assert_allclose([float(step(data)) for _ in range(3)], losses, rtol=1e-5)
        for part in dtensor.unpack(w.read_value()):
            np.testing.assert_allclose(part, want, rtol=1e-5)
            print(part.device[-5:])
        """,
        **TWO,
    ) == ["GPU:0", "GPU:1"]


def test_keras_distributes_over_gpus():
    """`keras.distribution` gives what one device gives."""
    losses = [
        told(
            f"""
            import json, os
            import keras, numpy as np
            if {share}:
                devices = keras.distribution.list_devices("gpu")
                keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
            keras.utils.set_random_seed(4)
            layers = [keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)]
            model = keras.Sequential([keras.Input((8,)), *layers])
            rng = np.random.default_rng(1)
            model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
            model.compile("sgd", "mse")
            x = rng.random((64, 8)).astype("float32")
            history = model.fit(x, x.sum(1), batch_size=16, epochs=2, shuffle=False, verbose=0)
            print(json.dumps(history.history["loss"]))
            """,
            **TWO,
        )[-1]
        for share in (False, True)
    ]
    np.testing.assert_allclose(*map(json.loads, losses), rtol=1e-5)
