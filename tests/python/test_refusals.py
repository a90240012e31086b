"""Drivers that refuse shaders: other forms of the shaders are used, with a warning. If the driver
refuses all forms, the op fails, and its device continues to work.

The fault layer (tests/fault_layer) simulates the driver. Each test runs in a separate process.
"""

import pytest
from fault_layer import behind
from support import python

PROGRAM = """
    import ctypes
    import os

    import keras
    import numpy as np
    import tensorflow as tf

    layer = ctypes.CDLL(os.environ["TF_WGPU_FAULT_LAYER"])
    layer.fault_layer_refuse.argtypes = [
        ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int32
    ]
    UNKNOWN, MANY = -13, 10**6
    ALL, OPTIMIZED, WITH_PUSH_CONSTANTS = range(3)
"""

EACH = (
    PROGRAM
    + """
    tf.config.set_soft_device_placement(False)
    x = np.random.default_rng(1).uniform(size=(4, 8, 8, 3)).astype("float32")
    kernel = np.ones((3, 3, 3, 5), "float32")
    plane = x[0, :, :, 0]
    uses = {
        "MatMul": lambda: tf.matmul(plane, plane),
        "Conv2D": lambda: tf.nn.conv2d(x, kernel, 1, "SAME"),
        "MaxPool": lambda: tf.nn.max_pool2d(x, 2, 2, "VALID"),
        "Sum": lambda: tf.reduce_sum(tf.constant(x), axis=1),
        "Cumsum": lambda: tf.cumsum(tf.constant(x), axis=1),
        "TopKV2": lambda: tf.math.top_k(tf.constant(plane), 3)[0],
        "Softmax": lambda: tf.nn.softmax(tf.constant(plane)),
        "a function": lambda: tf.function(lambda x: tf.exp(-x) * tf.tanh(x) + 1.0)(x),
    }
    with tf.device("WGPU:0"):
        kept = tf.Variable(x) + 1.0
        np.testing.assert_array_equal(kept, x + 1)
        layer.fault_layer_refuse(1, MANY, UNKNOWN, ALL)
        without_reason = 0
        for name, use in uses.items():
            for attempt in range(2):
                try:
                    use().numpy()
                except tf.errors.UnimplementedError as e:
                    text = str(e)
                    assert "does not compile on this adapter" in text, text
                    assert "the driver " in text and "refused it (ERROR_UNKNOWN)" in text, text
                except tf.errors.InternalError as e:
                    # The pipeline was not there when the op ran, and TensorFlow has no better
                    # error for a copy to the host. The next time it is the op's.
                    assert "SyncAll failed" in str(e) and attempt == 0, e
                    without_reason += 1
                else:
                    raise AssertionError(f"{name} has a pipeline")
            np.testing.assert_array_equal(kept, x + 1)
        layer.fault_layer_refuse(0, 0, 0, ALL)
        # The same ops on other types have other shaders.
        half = tf.matmul(tf.constant(plane, tf.float16), tf.constant(plane, tf.float16))
        np.testing.assert_allclose(half, plane @ plane, rtol=1e-2)
        whole = (100 * x).astype("int32")
        np.testing.assert_array_equal(tf.reduce_max(whole, axis=1), whole.max(axis=1))
    print("lives", without_reason)
"""
)

TRAINING = (
    PROGRAM
    + """
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(32, 8, 8, 3)).astype("float32")
    y = rng.integers(0, 4, 32)
    losses = []
    for device in ("CPU:0", "WGPU:0"):
        keras.utils.set_random_seed(1)
        with tf.device(device):
            model = keras.Sequential(
                [
                    keras.layers.Conv2D(8, 3, activation="relu"),
                    keras.layers.BatchNormalization(),
                    keras.layers.MaxPooling2D(),
                    keras.layers.Flatten(),
                    keras.layers.LayerNormalization(),
                    keras.layers.Dense(4, activation="softmax"),
                ]
            )
            model.compile("adam", "sparse_categorical_crossentropy")
            if device == "WGPU:0":
                layer.fault_layer_refuse(1, MANY, UNKNOWN, WHAT)
            history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    print("trained")
"""
)


# Only a contraction is compiled, so the order of its shaders is known: the usual form and the
# portable one of the chosen tile, then those of a simpler tile.
PRODUCTS = (
    PROGRAM
    + """
    tf.config.set_soft_device_placement(False)
    a = np.random.default_rng(1).integers(-3, 4, (64, 96)).astype("float32")
    b = np.random.default_rng(2).integers(-3, 4, (96, 80)).astype("float32")
    with tf.device("WGPU:0"):
        x, y = tf.constant(a), tf.constant(b)
        tf.add(x, 0.0).numpy()
        layer.fault_layer_refuse(1, COUNT, UNKNOWN, WHAT)
        for _ in range(2):
            np.testing.assert_array_equal(tf.matmul(x, y), a @ b)
        product = tf.function(lambda x: tf.nn.relu(tf.matmul(x, y)))
        np.testing.assert_array_equal(product(x), np.maximum(a @ b, 0))
    print("shaders", layer.fault_layer_shaders())
"""
)


# Programs of several products, and of attention: kernels of GPUs, which are refused in their usual
# and their portable form.
OTHERS = (
    PROGRAM
    + """
    rng = np.random.default_rng(1)

    def whole(*shape):
        return tf.constant(rng.integers(-3, 4, shape).astype("float32"))

    @tf.function
    def joined(x, a, b, c):
        return tf.matmul(x, a), tf.matmul(x, b), tf.matmul(x, c)

    @tf.function
    def summed(x, gradient):
        return tf.matmul(x, gradient, transpose_a=True), tf.reduce_sum(gradient, axis=0)

    @tf.function
    def attention(query, key, value):
        scores = tf.matmul(query, key, transpose_b=True) / 10.0
        return tf.matmul(tf.nn.softmax(scores), value)

    @tf.function
    def attention_grad(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            result = attention(query, key, value)
        return tape.gradient(result, [query, key, value], result)

    # Rows of 128 elements: their tiles have another form for GPUs with few registers.
    rows = [whole(2, 3, 20, 128) / 10 for _ in range(3)]
    program, inputs = {
        "joined": (joined, [whole(20, 32), *(whole(32, 24) for _ in range(3))]),
        "summed": (summed, [whole(40, 32), whole(40, 24)]),
        "attention": (attention, rows),
        "attention_grad": (attention_grad, rows),
    }["WHICH"]
    with tf.device("CPU:0"):
        wanted = tf.nest.map_structure(lambda x: x.numpy(), program(*inputs))
    tf.config.set_soft_device_placement(False)
    with tf.device("WGPU:0"):
        inputs = [tf.identity(x) for x in inputs]
        tf.add(inputs[0], 0.0).numpy()
        layer.fault_layer_refuse(1, COUNT, UNKNOWN, ALL)
        for _ in range(2):
            for got, want in zip(
                tf.nest.flatten(program(*inputs)), tf.nest.flatten(wanted), strict=True
            ):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    print("right")
"""
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Variables for a process behind the layer."""
    return {**behind(tmp_path_factory.mktemp("layer")), "TF_WGPU_CACHE": "off"}


def test_a_refused_shader_costs_its_op_and_nothing_else(environment):
    done = python(EACH, **environment)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("lives"))
    assert "lost" not in done.stderr
    # An error without the reason has a line with the reason in the log.
    without_reason = int(line.split()[1])
    assert done.stderr.count("tensorflow-wgpu: error: shader") >= without_reason


@pytest.mark.parametrize(
    ("what", "instead"),
    [
        ("OPTIMIZED", "it is compiled without optimizations, so it is slower"),
        ("WITH_PUSH_CONSTANTS", "its portable form is used"),
    ],
)
def test_a_training_goes_on_with_other_forms_of_shaders(environment, what, instead):
    done = python(TRAINING.replace("WHAT", what), **environment)
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "refused it" in line]
    assert len(lines) == 4, done.stderr
    assert all("refused it (ERROR_UNKNOWN)" in line for line in lines)
    assert any(instead in line for line in lines)
    assert lines[-1].endswith("further shaders are not named")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("count", "what", "instead"),
    [
        (1, "ALL", ["its portable form is used"]),
        (2, "ALL", ["a simpler one computes the same"]),
        (3, "ALL", ["a simpler one computes the same", "its portable form is used"]),
        (4, "OPTIMIZED", ["a simpler one computes the same", "without optimizations"]),
    ],
)
def test_a_product_has_a_simpler_tile(environment, count, what, instead):
    program = PRODUCTS.replace("COUNT", str(count)).replace("WHAT", what)
    done = python(program, **environment)
    assert done.returncode == 0, done.stderr
    assert "shaders" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "refused it" in line]
    assert len(lines) == len(instead), done.stderr
    assert all(text in line for text, line in zip(instead, lines, strict=True)), done.stderr
    assert all("shader contract" in line and "ERROR_UNKNOWN" in line for line in lines), lines


@pytest.mark.parametrize(
    ("which", "shader", "instead"),
    [
        ("joined", "contract", "a simpler one computes the same"),
        ("summed", "contract", "a simpler one computes the same"),
        ("attention", "attention", "a simpler one computes the same"),
        # Its shaders are compiled at the same time: those of one program may be refused, or one of
        # each.
        ("attention_grad", "attention", ""),
    ],
)
def test_fused_products_and_attention_have_a_simpler_form(environment, which, shader, instead):
    program = OTHERS.replace("COUNT", "2").replace("WHICH", which)
    done = python(program, **environment, TF_WGPU_PROFILE="nvidia")
    assert done.returncode == 0, done.stderr
    assert "right" in done.stdout
    lines = [line for line in done.stderr.splitlines() if "refused it" in line]
    assert any(instead in line for line in lines), done.stderr
    assert f"shader {shader}" in lines[0], lines


def test_what_was_refused_is_kept_for_the_next_process(environment, tmp_path):
    environment = {**environment, "TF_WGPU_CACHE": str(tmp_path)}
    program = PRODUCTS.replace("COUNT", "MANY").replace("WHAT", "WITH_PUSH_CONSTANTS")
    refused = []
    for _ in range(2):
        done = python(program, **environment)
        assert done.returncode == 0, done.stderr
        refused.append(done.stderr.count("refused it"))
    assert refused[0] > 0
    assert refused[1] == 0, "the second process does not ask for what is refused"
    assert [file.suffix for file in tmp_path.iterdir()].count(".refused") == 1
