"""The shortest test of everything. `make versions` runs it on every supported TensorFlow with its
Keras, and again with devices of the type GPU.
"""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from graphs import ops, optimized
from support import CPU, DEVICE, WGPU, on_both, python
from tensorflow_wgpu._library import device_type


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
        assert v.device.endswith(DEVICE)


def test_reference_variables_are_changed_where_they_lie():
    """TensorFlow 1's, in a graph."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, tf.device(WGPU):
        variable = v1.Variable([[1.0, 2.0], [3.0, 4.0]], use_resource=False)
        added = v1.assign_add(variable, [[1.0, 1.0], [1.0, 1.0]])
        step = v1.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(variable * variable))
        replaced = v1.assign(variable, [5.0], validate_shape=False)
        start = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=v1.ConfigProto(allow_soft_placement=False)) as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized"):
            session.run(added)
        session.run(start)
        assert session.run(added).tolist() == [[2, 3], [4, 5]]
        session.run(step)
        assert session.run(variable).tolist() == [[0, 0], [0, 0]]
        assert session.run(replaced).tolist() == [5]


def test_keras_fits_with_the_default_compile():
    """In a separate process: nothing but `import` and `fit`, as a user writes it."""
    ran = python(
        """
        import numpy as np, tensorflow as tf
        from tensorflow_wgpu._library import first_device
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
        assert all(first_device() in v.value.device for v in model.trainable_variables)
        print("trained on", tf.__version__)
        """
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.strip() == f"trained on {tf.__version__}"


def test_the_device_computes_what_the_cpu_does(rng):
    a, b = rng.normal(size=(33, 20)).astype("float32"), rng.normal(size=(20, 17)).astype("float32")
    on_both(lambda a, b: tf.nn.softmax(tf.matmul(a, b) + 1.0), a, b)
    on_both(lambda: tf.range(0.1, 1.1, 0.1))


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "SimpleRNN"])
def test_gradients_of_a_recurrent_layer(rng, cell):
    """Its loops and lists, under a tape, as a function and eagerly: the CPU's gradients."""
    x = rng.normal(size=(3, 5, 2)).astype("float32")
    gradients = {}
    tf.config.set_soft_device_placement(True)
    try:
        for device in (CPU, WGPU):
            with tf.device(device):
                layer = getattr(tf.keras.layers, cell)(4)
                layer.build((None, 5, 2))
                generator = np.random.default_rng(1)
                layer.set_weights(
                    [generator.normal(size=w.shape).astype("float32") for w in layer.get_weights()]
                )
                for name, call in (("function", tf.function(layer)), ("eager", layer)):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_sum(tf.square(call(tf.constant(x))))
                    gradients[device, name] = [
                        g.numpy() for g in tape.gradient(loss, layer.trainable_variables)
                    ]
    finally:
        tf.config.set_soft_device_placement(False)
    for name in ("function", "eager"):
        for got, want in zip(gradients[WGPU, name], gradients[CPU, name], strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_a_list_that_a_loop_fills_and_a_tape_reads(dtype):
    """Lists of types that TensorFlow's own kernels for pluggable devices leave out, too."""

    @tf.function
    def collect(x: tf.Tensor) -> tf.Tensor:
        values = tf.TensorArray(x.dtype, size=0, dynamic_size=True, element_shape=[2])
        i = tf.constant(0)
        while tf.reduce_sum(i) < tf.shape(x)[0]:
            values = values.write(i, x[i] * x[i])
            i += 1
        return values.stack()

    x = tf.cast(tf.reshape(tf.range(6), (3, 2)), dtype)
    tf.config.set_soft_device_placement(True)
    try:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = collect(x)
        assert y.numpy().tolist() == [[0, 1], [4, 9], [16, 25]]
        if dtype == "float32":
            assert tape.gradient(y, x).numpy().tolist() == [[0, 2], [4, 6], [8, 10]]
    finally:
        tf.config.set_soft_device_placement(False)


def test_the_graph_optimizer_is_at_work(rng):
    x = rng.normal(size=(40, 30)).astype("float32")
    chain = tf.function(lambda x: tf.exp(-tf.abs(tf.tanh(x) * 2.0 + 1.0)))
    with tf.device(WGPU):
        result, nodes = optimized(chain, tf.constant(x))
    np.testing.assert_allclose(result, np.exp(-np.abs(np.tanh(x) * 2 + 1)), rtol=1e-5, atol=1e-6)
    assert sum(n for op, n in ops(nodes).items() if op.startswith("_WgpuFused")) == 1, ops(nodes)


def test_fallbacks_are_reported():
    found = tensorflow_wgpu.fallbacks(
        lambda x: tf.strings.length(tf.strings.as_string(x)), tf.ones(3)
    )
    assert "AsString" in {f.op for f in found}
    assert not tensorflow_wgpu.fallbacks(tf.function(tf.nn.relu), tf.ones(3))


def test_device_details_name_the_adapter():
    (device,) = tf.config.list_physical_devices(device_type())[:1]
    details = tf.config.experimental.get_device_details(device)
    for key in ("device_name", "vendor", "backend"):
        assert details[key], details


def test_the_self_test_passes():
    ran = python(
        "import sys; from tensorflow_wgpu.__main__ import main; "
        "sys.argv = ['doctor', '--self-test']; sys.exit(main())"
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]


def test_an_explicit_jit_runs_without_xla():
    double = tf.function(lambda x: x * 2, jit_compile=True)
    assert double(tf.ones(2)).numpy().tolist() == [2, 2]
    with tf.device(CPU):
        assert double(tf.ones(2)).numpy().tolist() == [2, 2]


def test_a_scope_of_a_type_that_has_no_device_is_none():
    double = tf.function(lambda x: x * 2, jit_compile=True)
    tf.config.set_soft_device_placement(True)
    try:
        with tf.device("/TPU:0"):
            result = double(tf.ones(2))
    finally:
        tf.config.set_soft_device_placement(False)
    assert result.numpy().tolist() == [2, 2]
    assert result.device.endswith(DEVICE)


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_model_becomes_a_tflite_model(tmp_path, rng, kind):
    """TensorFlow's converter loads the variables in C++, and the calibrator runs the model."""
    module = tf.Module()
    with tf.device(WGPU):
        module.w = tf.Variable(rng.normal(size=(5, 3)).astype("float32"))
        module.call = tf.function(
            lambda x: tf.nn.relu(x @ module.w), input_signature=[tf.TensorSpec((1, 5))]
        )
    tf.saved_model.save(module, str(tmp_path), {"serving_default": module.call})
    rows = rng.normal(size=(8, 1, 5)).astype("float32")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path))
    if kind == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: ([row] for row in rows)
    interpreter = tf.lite.Interpreter(model_content=converter.convert())
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], rows[0])
    interpreter.invoke()
    got = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    want = np.maximum(rows[0] @ module.w.numpy(), 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=0.2 if kind == "int8" else 1e-5)


def test_legacy_keras_trains():
    """tf_keras, which `TF_USE_LEGACY_KERAS=1` puts in the place of Keras 3."""
    ran = python(
        """
        import numpy as np, tensorflow as tf
        from tensorflow_wgpu._library import first_device
        module = tf.keras.layers.Dense.__module__
        assert module.startswith("tf_keras."), module
        tf.keras.utils.set_random_seed(0)
        x = np.random.default_rng(0).normal(size=(64, 4, 4)).astype("float32")
        y = (x.mean(axis=(1, 2)) > 0).astype("int64")
        model = tf.keras.Sequential([
            tf.keras.layers.Conv1D(8, 3, groups=2), tf.keras.layers.SimpleRNN(8, unroll=True),
            tf.keras.layers.Dense(2)])
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(0.02), loss, metrics=["accuracy"])
        history = model.fit(x, y, batch_size=32, epochs=8, verbose=0).history["loss"]
        assert history[-1] < 0.8 * history[0], history
        assert all(first_device() in v.device for v in model.trainable_variables)
        print("trained")
        """,
        TF_USE_LEGACY_KERAS="1",
    )
    assert ran.stdout.strip() == "trained", ran.stderr[-4000:]


def test_a_profile_shows_the_device(tmp_path: Path):
    with tf.device(WGPU):
        x = tf.ones((16, 16))
        tf.linalg.matmul(x, x).numpy()
        tf.profiler.experimental.start(str(tmp_path))
        tf.linalg.matmul(x, x).numpy()
        tf.profiler.experimental.stop()
    # The message's module is not in every version.
    (trace,) = (path.read_bytes() for path in tmp_path.rglob("*.xplane.pb"))
    for part in (b"/device:GPU:0 (WGPU: ", b"MatMul [", b"MemcpyD2H", b"WGPU enqueue"):
        assert part in trace, part
    with tensorflow_wgpu.profile() as profile, tf.device(WGPU):
        tf.linalg.matmul(x, x).numpy()
    assert any(row.name.startswith("MatMul [") for row in profile.devices[0].rows)
