"""`tensorflow_wgpu.statistics` counts the device's work."""

import numpy as np
import tensorflow as tf
import tensorflow_wgpu
from support import CPU, WGPU, python

NAMES = [
    "dispatches",
    "barriers",
    "barriers_needed",
    "bytes",
    "submissions",
    "uploads",
    "uploaded",
    "downloads",
    "downloaded",
    "unstaged",
    "copies",
    "pipelines",
    "bind_groups",
    "bind_groups_held",
    "paged_out",
    "paged_in",
    "paged",
]


def counted(call) -> dict[str, int]:
    """The work of WGPU:0 in `call`."""
    before = tensorflow_wgpu.statistics()["WGPU:0"]
    call()
    after = tensorflow_wgpu.statistics()["WGPU:0"]
    assert list(after) == sorted(NAMES)
    return {name: after[name] - before[name] for name in NAMES}


def test_a_sum_is_one_dispatch_over_its_operands_and_its_result():
    with tf.device(WGPU):
        x, y = tf.ones([1000]), tf.ones([1000])
        (x + y).numpy()
        # `y` stays alive, so that the sum has its own memory.
        seen = counted(
            lambda: np.testing.assert_array_equal((x + y).numpy(), np.full(1000, 2, "float32"))
        )
    assert seen["dispatches"] == 1
    assert seen["bytes"] == 3 * 4000
    assert seen["submissions"] >= 1
    assert (seen["uploads"], seen["uploaded"], seen["copies"]) == (0, 0, 0)
    assert (seen["downloads"], seen["downloaded"]) == (1, 4000)
    assert seen["pipelines"] == 0, "the pipeline is there from the first sum"


def test_copies_from_the_host():
    array = np.arange(5000, dtype="float32")

    def copy() -> None:
        with tf.device(WGPU):
            tf.identity(tf.constant(array)).numpy()

    seen = counted(copy)
    assert (seen["uploads"], seen["uploaded"]) == (1, 20000)
    assert (seen["downloads"], seen["downloaded"]) == (1, 20000)
    assert seen["dispatches"] == 0


def test_a_step_of_a_function_counts_the_same_every_time():
    with tf.device(WGPU):
        v = tf.Variable(tf.ones([64, 64]))

        @tf.function
        def step():
            v.assign(tf.linalg.matmul(v, v) / 64.0)
            return tf.reduce_sum(v)

        step().numpy()
        first, second = counted(lambda: step().numpy()), counted(lambda: step().numpy())
    assert first["dispatches"] >= 2
    # TensorFlow may give a step other memory than the step before.
    unlike = {"submissions": 0, "bind_groups": 0, "bind_groups_held": 0}
    assert {**first, **unlike} == {**second, **unlike}


def test_dropout_waits_for_nothing():
    """Keras keeps seeds on the device; the numbers are still those of the CPU."""
    with tf.device(WGPU):
        seeds = tf.Variable([3, 7], dtype="uint32")

        @tf.function
        def step():
            seed = tf.cast(seeds.assign_add([1, 0]), "int32")
            return tf.random.stateless_uniform([100], seed)

        ours = step().numpy()
        seen = counted(lambda: step().numpy())
    assert (seen["downloads"], seen["downloaded"]) == (1, 400), "the numbers alone"
    assert seen["uploads"] == 0
    with tf.device(CPU):
        np.testing.assert_array_equal(ours, tf.random.stateless_uniform([100], [4, 7]).numpy())


def test_what_lies_elsewhere_needs_no_bind_group_of_its_own():
    kept = []
    with tf.device(WGPU):
        operands = [(tf.ones([n]), tf.ones([n])) for n in range(64, 1024, 96)]

        def step() -> None:
            # The kept tensors occupy the places of this step's sums, so that the next step's sums
            # get other places.
            kept.append([x + y for x, y in operands])

        for _ in range(20):
            step()
        seen = counted(lambda: [step() for _ in range(20)])
        assert seen["dispatches"] == 20 * len(operands)
        # A step or two may be the first in another of TensorFlow's blocks.
        assert seen["bind_groups"] <= 2 * len(operands)
        for (x, _), value in zip(operands, kept[-1], strict=True):
            np.testing.assert_array_equal(value.numpy(), np.full(x.shape, 2, "float32"))


def test_the_update_of_an_optimizer_copies_nothing_to_the_device():
    with tf.device(WGPU):
        variables = [tf.Variable(tf.ones([n])) for n in (3, 40, 500)]
        optimizer = tf.keras.optimizers.Adam(0.1)
        optimizer.build(variables)

        @tf.function
        def step():
            optimizer.apply([v * 0.5 for v in variables], variables)
            return variables[0] + 0.0

        first = step().numpy()
        seen = counted(lambda: np.testing.assert_array_less(step().numpy(), first))
    assert (seen["uploads"], seen["uploaded"]) == (0, 0)


def test_without_tensorflow_there_is_no_device():
    ran = python("import tensorflow_wgpu; print(tensorflow_wgpu.statistics())")
    assert ran.stdout.split() == ["{}"], ran.stderr
