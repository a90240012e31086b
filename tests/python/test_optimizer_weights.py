"""Layers whose weights alone Keras quantizes, to int4 or int8: a product reads the packed weights,
and nothing unpacks them. Results and gradients are compared with the CPU's.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from keras.quantizers import Int4QuantizationConfig, Int8QuantizationConfig
from support import CPU, WGPU, python

#: Products of matrices, and of tensors whose shapes are not known enough to be matrices.
PRODUCTS = ("_WgpuFusedQuantizedMatMul", "_WgpuFusedQuantizedEinsum")
#: Ops that unpack weights, and those that take each row's parameters from its group.
UNPACKING = {"BitwiseAnd", "BitwiseXor", "GatherV2", "Pack", "RightShift", "Transpose"}
#: The largest error as a part of the largest result. Keras rounds the unpacked weights of 16 bits,
#: which the product does not, and the CPU sums in another order.
TOLERANCES = {"float32": 1e-5, "mixed_float16": 4e-3, "mixed_bfloat16": 3e-2}


def dense(**kwargs):
    return lambda: keras.layers.Dense(12, activation="relu", **kwargs)


def heads(**kwargs):
    """Queries of an attention layer."""
    return lambda: keras.layers.EinsumDense(
        "abc,cde->abde", output_shape=(None, 4, 6), bias_axes="de", **kwargs
    )


def projection(**kwargs):
    """The projection of an attention layer's heads."""
    return lambda: keras.layers.EinsumDense(
        "abcd,cde->abe", output_shape=(None, 10), bias_axes="e", **kwargs
    )


def int4(block):
    return "int4", Int4QuantizationConfig(block_size=block)


INT8 = "int8", Int8QuantizationConfig(activation_quantizer=None)
#: Weights by channels and by groups, which do not divide all of the layers' inputs.
MODES = {"channels": int4(-1), "groups": int4(8), "odd groups": int4(5), "int8": INT8}
#: Keras quantizes no layer of float16 to int8.
CASES = [
    (mode, policy)
    for mode in MODES
    for policy in TOLERANCES
    if (mode, policy) != ("int8", "mixed_float16")
]


def layer_on(device, make, shape, mode, config):
    """A layer with the same weights on each device."""
    rng = np.random.default_rng(1)
    with tf.device(device):
        layer = make()
        layer.build((None, *shape[1:]))
        layer.set_weights([rng.normal(size=v.shape).astype("float32") for v in layer.variables])
        layer.quantize(mode, config=config)
    return layer


def compare(make, shape, mode, call, policy, products, unknown=False, eager=True):
    """Calls a layer on both devices within a function, and in eager mode too on WGPU. The function
    there has this number of products with quantized weights, and no node that unpacks any.
    """
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    cpu = layer_on(CPU, make, shape, *mode)
    wgpu = layer_on(WGPU, make, shape, *mode)
    dtype = cpu.compute_dtype
    with tf.device(CPU):
        want = tf.function(call(cpu))(tf.cast(x, dtype))
    with tf.device(WGPU):
        y = tf.cast(x, dtype)
        results = [call(wgpu)(y)] if eager else []
        known = [None, None, *shape[2:]] if unknown else shape
        signature = [tf.TensorSpec(known, dtype)]
        function = tf.function(call(wgpu), input_signature=signature)
        got, nodes = optimized(function, y)
    for result in [*results, got]:
        for a, b in zip(tf.nest.flatten(result), tf.nest.flatten(want), strict=True):
            assert a.dtype == b.dtype
            a, b = (tf.cast(v, "float64").numpy() for v in (a, b))
            assert np.abs(a - b).max() <= TOLERANCES[policy] * np.abs(b).max()
    found = ops(nodes)
    assert sum(found[op] for op in PRODUCTS) == products, found
    # Shapes that are not known take some of these ops, on the host.
    of_shapes = {"GatherV2", "Pack"} if unknown else set()
    assert not (UNPACKING - of_shapes) & found.keys(), found


def forward(layer):
    return lambda x: layer(x)


def gradients(layer):
    """The result with LoRA, and the gradients of the inputs and of what is trained."""
    if not layer.lora_enabled:
        layer.enable_lora(2)
        rng = np.random.default_rng(2)
        for variable in layer.trainable_variables:
            variable.assign(rng.normal(size=variable.shape).astype("float32"))

    def call(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
            loss = tf.reduce_sum(tf.square(tf.cast(y, "float32")))
        return [y, *tape.gradient(loss, [x, *layer.trainable_variables])]

    return call


@pytest.mark.parametrize(("mode", "policy"), CASES)
def test_dense(mode, policy):
    compare(dense(dtype=policy), (4, 16), MODES[mode], forward, policy, 1)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_dense_on_sequences_of_unknown_length(mode, rows):
    shape = (rows, 5, 17)
    compare(dense(dtype="float32"), shape, MODES[mode], forward, "float32", 1, unknown=True)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("make", [heads, projection])
@pytest.mark.parametrize("mode", ["channels", "groups"])
def test_einsums(mode, make, unknown):
    shape = (2, 5, 16) if make is heads else (2, 5, 4, 6)
    for policy in ("float32", "mixed_bfloat16"):
        compare(make(dtype=policy), shape, MODES[mode], forward, policy, 1, unknown)


@pytest.mark.parametrize(("mode", "policy"), CASES)
def test_gradients_of_dense_with_lora(mode, policy):
    # Keras's gradients by channels are float32, which a tape does not add to those of LoRA.
    eager = policy == "float32" or "groups" in mode
    compare(dense(dtype=policy), (4, 16), MODES[mode], gradients, policy, 2, eager=eager)


@pytest.mark.parametrize("make", [heads, projection])
@pytest.mark.parametrize("mode", ["channels", "groups"])
def test_gradients_of_einsums_with_lora(mode, make):
    shape = (2, 5, 16) if make is heads else (2, 5, 4, 6)
    compare(make(dtype="float32"), shape, MODES[mode], gradients, "float32", 2)


@pytest.mark.parametrize(
    ("tied", "policy"), [(True, "float32"), (True, "mixed_bfloat16"), (False, "float32")]
)
@pytest.mark.parametrize("mode", ["channels", "groups", "int8"])
def test_logits_of_a_reversible_embedding(mode, tied, policy):
    def make():
        return keras.layers.ReversibleEmbedding(21, 18, tie_weights=tied, dtype=policy)

    def call(layer):
        return lambda x: layer(x, reverse=True)

    compare(make, (3, 18), MODES[mode], call, policy, 1)


@pytest.mark.parametrize("policy", TOLERANCES)
@pytest.mark.parametrize("mode", ["channels", "groups"])
def test_rows_of_an_embedding(mode, policy):
    """Rows of packed codes are taken, and only these are unpacked."""

    def make():
        return keras.layers.Embedding(21, 18, dtype=policy)

    ids = tf.constant([[3, 0, 20, 7], [1, 1, 19, 2]])
    cpu, wgpu = (layer_on(device, make, (1,), *MODES[mode]) for device in (CPU, WGPU))
    with tf.device(CPU):
        want = tf.function(cpu)(ids)
    with tf.device(WGPU):
        function = tf.function(
            lambda x: wgpu(x), input_signature=[tf.TensorSpec([None, 4], "int32")]
        )
        got, nodes = optimized(function, ids)
    got, want = (tf.cast(v, "float64").numpy() for v in (got, want))
    assert np.abs(got - want).max() <= TOLERANCES[policy] * np.abs(want).max()
    found = ops(nodes)
    assert not (UNPACKING - {"GatherV2"}) & found.keys(), found


def calibrated(layer, mode):
    """A layer with random weights as a calibration leaves them."""
    rng = np.random.default_rng(3)
    layer.quantized_kernel.assign(rng.integers(0, 256, layer.quantized_kernel.shape))
    layer.kernel_scale.assign(rng.uniform(0.1, 1, layer.kernel_scale.shape))
    layer.kernel_zero.assign(rng.integers(0, 16, layer.kernel_zero.shape))
    layer.g_idx.assign(np.arange(layer.g_idx.shape[0]) // 4)
    if mode == "awq":
        layer.awq_scales.assign(rng.uniform(0.5, 2, layer.awq_scales.shape))
    setattr(layer, f"is_{mode}_calibrated", True)


@pytest.mark.parametrize("kind", ["Dense", "EinsumDense"])
@pytest.mark.parametrize("mode", ["gptq", "awq"])
def test_calibrated_weights(mode, kind):
    config = {"gptq": keras.quantizers.GPTQConfig, "awq": keras.quantizers.AWQConfig}[mode]
    config = config(dataset=None, tokenizer=None, group_size=4)

    def call(layer):
        calibrated(layer, mode)
        return lambda x: layer(x)

    make, shape = (dense(), (4, 16)) if kind == "Dense" else (heads(), (2, 5, 16))
    compare(make, shape, (mode, config), call, "float32", 1)


#: Quantizes a layer where the best free chunks are half as large again as its weights.
CHUNKS = """
    import keras, tensorflow as tf

    def held():
        return tf.config.experimental.get_memory_info("WGPU:0")["current"]

    with tf.device("WGPU:0"):
        layer = keras.layers.Dense(2048, use_bias=False)
        layer.build((None, 2048))
        packed = 2048 * 2048 // (1 if MODE == "int8" else 2)
        chunks = [tf.zeros([packed * 3 // 2], tf.int8) for _ in range(8)]
        del chunks[::2]
        rest = held() - 4 * 2048 * 2048
        layer.quantize(MODE)
        print(packed, held() - rest)
        assert abs(layer.kernel.numpy()).max() > 1
"""


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_weights_take_chunks_of_their_size(mode):
    done = python(CHUNKS.replace("MODE", repr(mode)))
    assert done.returncode == 0, done.stderr
    packed, taken = map(int, done.stdout.split())
    assert packed <= taken <= 1.1 * packed
