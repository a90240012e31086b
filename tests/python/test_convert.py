"""Conversion and export in the process that trained on WGPU: TFLite's converter, calibrator and
interpreter, quantizers and MLIR make their own sessions in C++, which get no WGPU device.
"""

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, DEVICE, python
from tensorflow_wgpu import _converters

KINDS = ["none", "dynamic range", "float16", "int8"]
#: How far the model's outputs, which are about 1, may be from those of its TFLite model.
TOLERANCE = {"none": 1e-5, "dynamic range": 0.02, "float16": 2e-3, "int8": 0.05}


@pytest.fixture(autouse=True)
def soft_placement():
    """The default of programs: Keras's data pipelines need the CPU."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).random((4, 8, 8, 1), "float32")


@pytest.fixture(scope="module")
def model(images):
    """A model of Keras that trained on WGPU."""
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(3)
    made = tf.keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(3, activation="tanh"),
        ]
    )
    made.compile("adam", "mse")
    made.fit(images, np.ones((4, 3), "float32"), verbose=0)
    assert made.trainable_variables[0].value.device.endswith(DEVICE)
    return made


def exported(model, path: str) -> None:
    """A SavedModel for inference."""
    model.export(path, verbose=False)


def converted(converter, images: np.ndarray, kind: str = "none") -> np.ndarray:
    """The TFLite model's results for the images."""
    if kind != "none":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        converter.representative_dataset = lambda: ([image[None]] for image in images)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return interpreted(converter.convert(), images)


def interpreted(flatbuffer: bytes, images: np.ndarray) -> np.ndarray:
    interpreter = tf.lite.Interpreter(model_content=flatbuffer)
    (given,), (found,) = interpreter.get_input_details(), interpreter.get_output_details()
    interpreter.resize_tensor_input(given["index"], images.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(given["index"], images)
    interpreter.invoke()
    return interpreter.get_tensor(found["index"])


@pytest.mark.skipif(
    tf.__version__.startswith("2.16."),
    reason="with Keras 3, TensorFlow 2.16 ends the process in this converter, on the CPU too",
)
@pytest.mark.parametrize("kind", KINDS)
def test_tflite_from_a_keras_model(model, images, kind):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    got = converted(converter, images, kind)
    np.testing.assert_allclose(got, model(images), atol=TOLERANCE[kind])


@pytest.mark.parametrize("kind", ["none", "int8"])
def test_tflite_from_a_saved_model(model, images, tmp_path, kind):
    exported(model, str(tmp_path))
    got = converted(tf.lite.TFLiteConverter.from_saved_model(str(tmp_path)), images, kind)
    np.testing.assert_allclose(got, model(images), atol=TOLERANCE[kind])
    # The session of the converter is closed; the process continues to work.
    loaded = tf.saved_model.load(str(tmp_path))
    outputs = loaded.serve(tf.constant(images))
    assert outputs.device.endswith(DEVICE)
    np.testing.assert_allclose(outputs, model(images), rtol=1e-4, atol=1e-5)


def test_tflite_from_concrete_functions(images):
    module = tf.Module()
    module.weights = tf.Variable(np.linspace(-1, 1, 128, dtype="float32").reshape(64, 2))
    function = tf.function(
        lambda x: tf.tanh(tf.reshape(x, [4, 64]) @ module.weights),
        input_signature=[tf.TensorSpec(images.shape)],
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], module
    )
    np.testing.assert_allclose(converted(converter, images), function(images), atol=1e-5)


def test_tflite_after_training_with_simulated_quantization(images):
    """As TensorFlow's Model Optimization Toolkit trains: the ranges of weights and activations are
    those of fake quantization, and the converter takes them over.
    """
    fake = tf.quantization.fake_quant_with_min_max_vars
    module = tf.Module()
    module.weights = tf.Variable(np.linspace(-0.1, 0.1, 128, dtype="float32").reshape(64, 2))
    module.low, module.high = tf.Variable(-1.0), tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec(images.shape)])
    def function(x):
        x = fake(tf.reshape(x, [4, 64]), 0.0, 1.0)
        weights = fake(module.weights, -0.2, 0.2, num_bits=8, narrow_range=True)
        return fake(x @ weights, module.low, module.high)

    assert module.weights.device.endswith(DEVICE)
    before = module.weights.numpy()
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((function(tf.constant(images)) - 0.5) ** 2)
        gradients = tape.gradient(loss, [module.weights, module.low, module.high])
        for variable, gradient in zip([module.weights, module.low, module.high], gradients):
            variable.assign_sub(0.003 * gradient)
    assert not np.array_equal(module.weights, before)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [function.get_concrete_function()], module
    )
    got = converted(converter, images, "dynamic range")
    step = float(module.high - module.low) / 255
    np.testing.assert_allclose(got, function(tf.constant(images)), atol=2 * step)


def test_a_frozen_saved_model_through_tensorflows_optimizer(model, images, tmp_path):
    """As TensorFlow.js's converter makes its graph: variables become constants, and TensorFlow's
    own passes run on the result.
    """
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2 as frozen,
    )
    from tensorflow.python.grappler import tf_optimizer

    exported(model, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    function = frozen(loaded.signatures["serving_default"])
    graph = tf.compat.v1.train.export_meta_graph(
        graph_def=function.graph.as_graph_def(), graph=function.graph
    )
    fetches = meta_graph_pb2.CollectionDef()
    fetches.node_list.value.extend(tensor.name for tensor in function.outputs)
    graph.collection_def["train_op"].CopyFrom(fetches)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.optimizers.extend(
        ["debug_stripper", "remap", "constfold", "arithmetic", "dependency"]
    )
    optimized = tf_optimizer.OptimizeGraph(config, graph)
    assert not {"VarHandleOp", "ReadVariableOp"} & {node.op for node in optimized.node}
    names = [tensor.name for tensor in (*function.inputs[:1], *function.outputs)]

    def imported():
        tf.graph_util.import_graph_def(optimized, name="")

    wrapped = tf.compat.v1.wrap_function(imported, [])
    pruned = wrapped.prune(*(wrapped.graph.as_graph_element(name) for name in names))
    np.testing.assert_allclose(pruned(tf.constant(images)), model(images), rtol=1e-4, atol=1e-5)


def test_a_variable_that_a_tflite_model_assigns():
    """The converter keeps the variable, and reads its value."""

    class Counter(tf.Module):
        def __init__(self):
            super().__init__()
            self.count = tf.Variable([3.0, 4.0])

        @tf.function(input_signature=[tf.TensorSpec([2])])
        def add(self, x):
            """Adds."""
            return self.count.assign_add(x)

    counter = Counter()
    assert counter.count.device.endswith(DEVICE)
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [counter.add.get_concrete_function()], counter
    )
    converter.experimental_enable_resource_variables = True
    one = np.ones(2, "float32")
    assert interpreted(converter.convert(), one).tolist() == [4, 5]


def test_ops_of_tensorflow_within_a_tflite_model(images):
    """They run in the interpreter's own eager context, which reads their memory."""
    function = tf.function(
        lambda x: tf.math.cumulative_logsumexp(x, axis=1) / 9.0,
        input_signature=[tf.TensorSpec(images.shape)],
    )
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.SELECT_TF_OPS]
    with tf.device(CPU):
        want = function(images)
    try:
        got = converted(converter, images)
    except RuntimeError as e:
        if "link the Flex delegate" not in str(e):
            raise
        pytest.skip("this TensorFlow's interpreter has no ops of TensorFlow")
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not hasattr(tf.keras.Model, "export"), reason="an old Keras")
@pytest.mark.parametrize("way", ["litert", "tf_saved_model"])
def test_keras_exports(model, images, tmp_path, way):
    path = tmp_path / ("model.tflite" if way == "litert" else "model")
    try:
        model.export(str(path), format=way, verbose=False)
    except ValueError as e:
        if "litert" in str(e) and "Unrecognized format" in str(e):
            pytest.skip("this Keras has no format litert")
        raise
    if way == "litert":
        got = interpreted(path.read_bytes(), images)
    else:
        loaded = tf.saved_model.load(str(path))
        got = loaded.serve(images)
    np.testing.assert_allclose(got, model(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["dynamic range", "weights", "static range"])
def test_tensorflows_quantizer(model, images, tmp_path, kind):
    """It loads the model in C++, and calls Python for the calibration."""
    module = "tensorflow.compiler.mlir.quantization.tensorflow"
    quantize_model = pytest.importorskip(f"{module}.python.quantize_model")
    options = pytest.importorskip(f"{module}.quantization_options_pb2")
    methods = options.QuantizationMethod
    method = {
        "dynamic range": methods.METHOD_DYNAMIC_RANGE_INT8,
        "weights": methods.METHOD_STATIC_RANGE_WEIGHT_ONLY_INT8,
        "static range": methods.METHOD_STATIC_RANGE_INT8,
    }[kind]
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    exported(model, source)
    (name,) = (
        tf.saved_model.load(source).signatures["serving_default"].structured_input_signature[1]
    )
    quantize_model.quantize(
        source,
        target,
        options.QuantizationOptions(
            quantization_method=methods(preset_method=method),
            op_set=options.XLA if kind == "weights" else options.TF,
            tags=["serve"],
            signature_keys=["serving_default"],
        ),
        representative_dataset=[{name: image[None]} for image in images],
    )
    quantized = tf.saved_model.load(target).signatures["serving_default"]
    (got,) = quantized(tf.constant(images)).values()
    np.testing.assert_allclose(got, model(images), atol=0.05)


def test_mlir_of_a_saved_model(model, tmp_path):
    exported(model, str(tmp_path))
    text = tf.mlir.experimental.convert_saved_model(str(tmp_path), "", False)
    assert "tf.Conv2D" in text


def test_devices_are_hidden_from_the_thread_that_converts_alone():
    """Calls nest; an error of the converter ends the hiding."""
    list_devices = tf.compat.v1.Session

    def devices() -> int:
        with tf.Graph().as_default(), list_devices() as session:
            return sum(d.device_type == DEVICE.split(":")[0] for d in session.list_devices())

    assert devices() == 1
    with _converters.hidden():
        with _converters.hidden():
            pass
        assert devices() == 0
        # An open context keeps its devices.
        assert (tf.ones(2) * 2).device.endswith(DEVICE)

    def fail():
        assert devices() == 0
        raise RuntimeError("converter")

    with pytest.raises(RuntimeError, match="converter"):
        _converters.without_devices(fail)()
    assert devices() == 1


def test_a_process_that_converts_first_has_its_devices_later(model, tmp_path):
    exported(model, str(tmp_path))
    ran = python(
        f"""
        import tensorflow as tf
        from tensorflow.lite.python import convert
        converter = tf.lite.TFLiteConverter.from_saved_model({str(tmp_path)!r})
        print(len(converter.convert()) > 1000)
        print(tf.ones(2).device)
        """
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    size, device = ran.stdout.split()
    assert size == "True"
    assert device.endswith(DEVICE)


def test_dlpack_is_refused_with_an_error():
    """docs/BROKEN.md describes how to pass an array to another library."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="Unsupported Device Type"):
        tf.experimental.dlpack.to_dlpack(tf.ones(3))
