"""TensorFlow's own CPU kernels, in functions but for the small adds, which are eager."""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from rows import measure, tell

try:
    import tensorflow as tf
except ImportError:
    tell(refused="needs TensorFlow: python -m pip install tensorflow")
    raise SystemExit(0) from None

Run = Callable[[int], None]


def of(function: Callable, *shapes: list[int]) -> Callable[[], Run]:
    """The maker of a row that calls a function on random tensors."""

    def make() -> Run:
        with tf.device("CPU:0"):
            inputs = [tf.random.normal(shape) for shape in shapes]
            compiled = tf.function(function)

        def run(times: int) -> None:
            with tf.device("CPU:0"):
                for _ in range(times):
                    compiled(*inputs)

        return run

    return make


def small() -> Run:
    """1000 adds of 64 floats."""
    with tf.device("CPU:0"):
        x = tf.random.normal([64])

    def run(times: int) -> None:
        with tf.device("CPU:0"):
            for _ in range(1000 * times):
                tf.add(x, x)

    return run


def gelu(x: tf.Tensor) -> tf.Tensor:
    """By tanh."""
    return 0.5 * x * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def layer_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Composed, as Keras does it."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)


tell(about=f"TensorFlow {tf.__version__}, CPU")
measure(
    {
        "matmul": of(tf.matmul, [1024, 1024], [1024, 1024]),
        "conv3": of(lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), [8, 56, 56, 64], [3, 3, 64, 64]),
        "conv1": of(lambda x, w: tf.nn.conv2d(x, w, 1, "SAME"), [8, 14, 14, 256], [1, 1, 256, 1024]),
        "add": of(tf.add, [16 << 20], [16 << 20]),
        "gelu": of(gelu, [16 << 20]),
        "softmax": of(tf.nn.softmax, [4096, 1024]),
        "sum_last": of(lambda x: tf.reduce_sum(x, 1), [4096, 4096]),
        "sum_first": of(lambda x: tf.reduce_sum(x, 0), [4096, 4096]),
        "layer_norm": of(layer_norm, [4096, 1024], [1024], [1024]),
        "small": small,
    }
)
