"""The last layer of a language model with its loss, the gradient of its input and its accuracy is
one node, which has the logits in parts: the CPU's numbers, and little memory.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from graphs import ops, optimized
from support import CPU, WGPU, assert_close

NODE = "_WgpuFusedLinearCrossEntropy"
# The logits of 16 bits have 19 MB: more than the node has at a time.
ROWS, DEPTH, CLASSES = 240, 8, 40_000
TOLERANCES = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture
def soft_placement():
    """Keras makes datasets in the device's scope, which only the CPU has."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


def step(transposed):
    """A step of a head with weights that do not learn."""

    @tf.function(reduce_retracing=True)
    def call(x, weights, labels):
        with tf.GradientTape() as tape:
            tape.watch(x)
            logits = tf.matmul(x, weights, transpose_b=transposed)
            # As Keras's losses do in mixed precision.
            wide = tf.cast(logits, "float32")
            loss = keras.losses.sparse_categorical_crossentropy(labels, wide, from_logits=True)
            loss = tf.reduce_mean(loss)
        hits = keras.ops.argmax(logits, axis=-1) == keras.ops.cast(labels, "int32")
        hits = tf.reduce_sum(tf.cast(hits, "int32"))
        return loss, tape.gradient(loss, x), hits

    return call


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_a_head_has_the_numbers_of_the_cpu(dtype, transposed, rng):
    x = rng.normal(size=(2, ROWS // 2, DEPTH))
    weights = rng.normal(size=(CLASSES, DEPTH) if transposed else (DEPTH, CLASSES))
    labels = rng.integers(0, CLASSES, (2, ROWS // 2))
    # The logit of half of the labels is the largest one.
    columns = weights.T if not transposed else weights
    likely = (x.reshape(ROWS, DEPTH) @ columns.T).argmax(-1).reshape(labels.shape)
    labels[:, ::2] = likely[:, ::2]
    results = {}
    for device in (CPU, WGPU):
        with tf.device(device):
            given = [tf.constant(x, dtype), tf.constant(weights, dtype), tf.constant(labels)]
            if device == CPU:
                # In float16, shares of the sum vanish there before they are multiplied.
                given[:2] = [tf.cast(value, "float32") for value in given[:2]]
                results[device] = step(transposed)(*given)
            else:
                results[device], nodes = optimized(step(transposed), *given)
                found = ops(nodes)
                assert found[NODE] == 1, found
                assert not found["ArgMax"] + found["_WgpuFusedArg"], found
    (loss, gradient, hits), (wanted, other, all_hits) = results[WGPU], results[CPU]
    tolerance = TOLERANCES[dtype]
    assert_close(loss, wanted, rtol=tolerance)
    largest = np.abs(tf.cast(other, "float32")).max()
    gradient = tf.cast(gradient, "float32")
    assert_close(gradient, other, rtol=tolerance, atol=tolerance * largest)
    # In 16 bits, logits are equal that were not.
    assert abs(int(hits) - int(all_hits)) <= (0 if dtype == "float32" else ROWS // 20)
    assert int(hits) > ROWS // 4


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_model_trains_with_batches_of_any_size(policy, rng, soft_placement):
    """As `fit` does: the batch is unknown, and the last one is smaller."""
    x = rng.normal(size=(5, 120, 12)).astype("float32")
    y = rng.integers(0, CLASSES, (5, 120))
    found = {}
    for device in (CPU, WGPU):
        keras.utils.set_random_seed(3)
        with tf.device(device):
            head = keras.layers.Dense(CLASSES, use_bias=False, dtype=policy)
            model = keras.Sequential(
                [keras.Input((120, 12)), keras.layers.Dense(DEPTH, dtype=policy), head]
            )
            initial = np.random.default_rng(4)
            model.set_weights([initial.normal(size=w.shape) / 2 for w in model.get_weights()])
            head.trainable = False
            model.compile(
                optimizer=keras.optimizers.SGD(0.5),
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
            )
            fit = {"batch_size": 2, "epochs": 2, "shuffle": False, "verbose": 0}
            told, nodes = optimized(model.fit, x, y, **fit)
            assert device == CPU or ops(nodes)[NODE], ops(nodes)
            history = told.history
            found[device] = [*history["loss"], *history["accuracy"]], model.get_weights()[0]
    tolerance = 1e-4 if policy == "float32" else 2e-2
    assert_close(found[WGPU][0], found[CPU][0], rtol=tolerance, atol=tolerance)
    assert_close(found[WGPU][1], found[CPU][1], rtol=tolerance, atol=tolerance)


def test_a_label_that_is_no_class(rng):
    x, weights = rng.normal(size=(ROWS, DEPTH)), rng.normal(size=(CLASSES, DEPTH))
    labels = rng.integers(0, CLASSES, ROWS)
    labels[3], labels[5] = CLASSES, -1
    with tf.device(WGPU):
        given = [tf.constant(x, "float32"), tf.constant(weights, "float32"), tf.constant(labels)]

        @tf.function
        def call(x, weights, labels):
            with tf.GradientTape() as tape:
                tape.watch(x)
                logits = tf.matmul(x, weights, transpose_b=True)
                loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            return loss, tape.gradient(loss, x)

        (loss, gradient), nodes = optimized(call, *given)
    assert ops(nodes)[NODE] == 1
    for values in (loss.numpy(), gradient.numpy().sum(-1)):
        assert np.flatnonzero(np.isnan(values)).tolist() == [3, 5]


def test_the_logits_are_not_in_memory(rng):
    x, weights = rng.normal(size=(2, 1024, DEPTH)), rng.normal(size=(CLASSES, DEPTH))
    labels = rng.integers(0, CLASSES, (2, 1024))
    with tf.device(WGPU):
        given = [tf.constant(x, "float32"), tf.constant(weights, "float32"), tf.constant(labels)]
    call = step(transposed=True)
    call(*given)
    tf.config.experimental.reset_memory_stats(WGPU)
    before = tf.config.experimental.get_memory_info(WGPU)["current"]
    call(*given)
    taken = tf.config.experimental.get_memory_info(WGPU)["peak"] - before
    logits = 2 * 1024 * CLASSES * 4
    assert taken < logits / 10, (taken, logits)
