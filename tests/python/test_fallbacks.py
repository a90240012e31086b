"""`tensorflow_wgpu.fallbacks` and `TF_WGPU_FALLBACK`: no float op runs on the CPU unnoticed."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from support import python


def decode(x):
    """Greedy CTC decoding: float in, and on the CPU in TensorFlow's own GPU build too."""
    return tf.nn.ctc_greedy_decoder(2.0 * x, [3, 3])[1]


def test_a_program_that_fits_has_none():
    found = tensorflow_wgpu.fallbacks(lambda x: tf.reduce_sum(tf.nn.relu(x) @ x), tf.ones([4, 4]))
    assert not found.floating, found


@pytest.mark.parametrize("wrap", [tf.function, lambda f: f])
def test_an_op_without_a_kernel_is_named_with_its_reason(wrap):
    found = tensorflow_wgpu.fallbacks(wrap(decode), tf.ones([3, 2, 5])).floating
    assert [(f.op, f.types["T"], f.count) for f in found] == [("CTCGreedyDecoder", "float32", 1)]
    assert found[0].why == "WGPU has no kernel for CTCGreedyDecoder"
    assert "1 x CTCGreedyDecoder(T=float32) on the CPU" in str(found)


def test_a_type_without_a_kernel_is_named_with_those_that_have_one():
    def program(x):
        return tf.raw_ops.Cumsum(x=tf.cast(x, tf.int16), axis=0)

    (found,) = [f for f in tensorflow_wgpu.fallbacks(program, tf.ones([3])) if f.op == "Cumsum"]
    assert found.types["T"] == "int16"
    assert not found.floating
    assert "for T in bfloat16" in found.why
    assert "not for int16" in found.why


def test_what_the_user_put_on_the_cpu_says_so():
    @tf.function
    def program(x):
        with tf.device("CPU:0"):
            return tf.matmul(x, x)

    (found,) = tensorflow_wgpu.fallbacks(program, tf.ones([3, 3])).floating
    assert found.op in ("MatMul", "_FusedMatMul", "_MklMatMul")
    assert "tf.device" in found.why
    assert not found.cause


def test_a_keras_model_and_its_training_step():
    keras = tf.keras
    model = keras.Sequential(
        [keras.Input([6]), keras.layers.Dense(4, "relu"), keras.layers.Dense(3, "softmax")]
    )
    x = np.ones([5, 6], "float32")
    assert not tensorflow_wgpu.fallbacks(model, x).floating
    model.compile("adam", "sparse_categorical_crossentropy")
    found = tensorflow_wgpu.fallbacks(lambda: model.train_on_batch(x, np.zeros(5, "int32")))
    assert not found.floating, found


@tf.function
def a_loop_with_a_cause(x):
    for _ in tf.range(3):
        if tf.reduce_sum(x) < 1e9:
            x += tf.reshape(decode(tf.reshape(x, [3, 2, 5])), [-1])[0]
    return x


def test_causes_come_first_and_loops_are_left_out():
    """TensorFlow gives the CPU a copy of the loop around an op that is there."""
    found = tensorflow_wgpu.fallbacks(a_loop_with_a_cause, tf.ones([30]))
    assert [(f.op, f.cause) for f in found.floating] == [("CTCGreedyDecoder", True)], found
    assert not {f.op for f in found} & {"Enter", "Merge", "Switch", "NextIteration", "LoopCond"}

    def program(x):
        with tf.device("CPU:0"):
            for _ in range(3):
                x = tf.cumsum(x)
        return decode(x), tf.strings.as_string(tf.cast(x, tf.int32))

    found = tensorflow_wgpu.fallbacks(tf.function(program), tf.ones([3, 2, 5]))
    ranks = {f.op: (i, f.cause, f.floating) for i, f in enumerate(found)}
    assert ranks["CTCGreedyDecoder"] == (0, True, True)
    assert ranks["Cumsum"][1:] == (False, True)
    assert ranks["AsString"][1:] == (True, False)
    assert ranks["AsString"] < ranks["Cumsum"], "one of another type is a cause too"
    assert found[ranks["Cumsum"][0]].count == 3

    @tf.function
    def fused(x):
        with tf.device("CPU:0"):
            return tf.sin(tf.sin(x))

    (made,) = tensorflow_wgpu.fallbacks(fused, tf.ones([4])).floating
    assert (made.op, made.cause) == ("_UnaryOpsComposition", False)
    assert "TensorFlow's optimizer made it of ops" in made.why


def test_pipelines_come_last():
    def program():
        return [decode(x) for x in tf.data.Dataset.from_tensors(tf.ones([3, 2, 5])).repeat(2)]

    found = tensorflow_wgpu.fallbacks(program)
    assert found[0].op == "CTCGreedyDecoder"
    assert "Dataset" in found[-1].op or "Iterator" in found[-1].op


def test_soft_placement_is_as_before():
    assert not tf.config.get_soft_device_placement()
    tensorflow_wgpu.fallbacks(lambda: tf.ones([2]))
    assert not tf.config.get_soft_device_placement()


PROGRAM = """
import tensorflow as tf
x = tf.ones([3, 2, 5])
print("sum", float(tf.function(lambda x: tf.reduce_sum(x))(x)))
for _ in range(2):
    try:
        {call}
    except Exception as e:
        print(type(e).__name__, e)
"""
EAGER = "tf.nn.ctc_greedy_decoder(x, [3, 3])"
GRAPH = (
    "f = globals().setdefault('f', tf.function(lambda x: tf.nn.ctc_greedy_decoder(x, [3, 3])[1])); "
    "f(x)"
)


@pytest.mark.parametrize("call", [EAGER, GRAPH], ids=["eager", "function"])
def test_log_mode_writes_one_line_for_each_op(call):
    done = python(PROGRAM.format(call=call), TF_WGPU_FALLBACK="log")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("CTCGreedyDecoder(T=float32) on the CPU") == 1
    assert "sum 30.0" in done.stdout


def test_log_mode_leaves_the_answer_complete():
    """The process's own watch looks at the same functions, within the run of `fallbacks`."""
    call = (
        "import tensorflow_wgpu; print(tensorflow_wgpu.fallbacks("
        "tf.function(lambda x: tf.nn.ctc_greedy_decoder(x, [3, 3])[1]), x))"
    )
    done = python(PROGRAM.format(call=call), TF_WGPU_FALLBACK="log")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("CTCGreedyDecoder(T=float32) on the CPU") == 1
    assert done.stdout.count("1 x CTCGreedyDecoder(T=float32) on the CPU") == 2, done.stdout


@pytest.mark.parametrize("call", [EAGER, GRAPH], ids=["eager", "function"])
def test_error_mode_raises_every_time(call):
    done = python(PROGRAM.format(call=call), TF_WGPU_FALLBACK="error")
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.count("FallbackError TF_WGPU_FALLBACK=error: float ops ran on the CPU.") == 2
    ), done.stdout
    assert "sum 30.0" in done.stdout
