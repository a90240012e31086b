"""TensorFlow on one of its devices, the CPU unless the command line names another, such as WGPU:0.

The rows are functions, except the small additions, which are eager.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from rows import Run, serve, tell

try:
    import tensorflow as tf
except ImportError:
    tell(refused="needs TensorFlow: python -m pip install tensorflow")
    raise SystemExit(0) from None

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "CPU:0"
if not tf.config.list_physical_devices(DEVICE.partition(":")[0]):
    tell(
        refused=(
            f"TensorFlow {tf.__version__} has no {DEVICE}: python -m pip install tensorflow-wgpu"
        )
    )
    raise SystemExit(0)


def wait(probe: tf.Tensor) -> None:
    """Waits for the device, whose work is done in order."""
    with tf.device(DEVICE):
        tf.add(probe, probe).numpy()


def of(function: Callable, *shapes: list[int]) -> Callable[[], Run]:
    """The maker of a row that calls a function on random tensors."""

    def make() -> Run:
        with tf.device(DEVICE):
            inputs = [tf.random.normal(shape) for shape in shapes]
            probe = tf.random.normal([1])
            compiled = tf.function(function)

        def run(times: int) -> None:
            with tf.device(DEVICE):
                for _ in range(times):
                    compiled(*inputs)
            wait(probe)

        return run

    return make


def small() -> Run:
    """1000 adds of 64 floats."""
    with tf.device(DEVICE):
        x, y = tf.random.normal([64]), tf.random.normal([64])

    def run(times: int) -> None:
        with tf.device(DEVICE):
            for _ in range(1000 * times):
                tf.add(x, y)
        wait(x)

    return run


def gelu(x: tf.Tensor) -> tf.Tensor:
    """GELU by tanh."""
    return 0.5 * x * (1.0 + tf.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def layer_norm(x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Composed of plain ops, as in Keras."""
    mean, variance = tf.nn.moments(x, [-1], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)


def convolutions(key: str, x: list[int], w: list[int]) -> dict[str, Callable[[], Run]]:
    """A convolution of stride 1 and its gradients."""
    y = [*x[:3], w[3]]
    how = {"strides": [1] * 4, "padding": "SAME"}
    raw = tf.raw_ops
    return {
        key: of(lambda x, w: raw.Conv2D(input=x, filter=w, **how), x, w),
        f"{key}_x": of(
            lambda w, y: raw.Conv2DBackpropInput(input_sizes=x, filter=w, out_backprop=y, **how),
            w,
            y,
        ),
        f"{key}_w": of(
            lambda x, y: raw.Conv2DBackpropFilter(input=x, filter_sizes=w, out_backprop=y, **how),
            x,
            y,
        ),
    }


tell(about=f"TensorFlow {tf.__version__}, {DEVICE}")
serve(
    {
        "matmul": of(tf.matmul, [1024, 1024], [1024, 1024]),
        **convolutions("conv3", [8, 56, 56, 64], [3, 3, 64, 64]),
        **convolutions("conv1", [8, 14, 14, 256], [1, 1, 256, 1024]),
        "add": of(tf.add, [16 << 20], [16 << 20]),
        "gelu": of(gelu, [16 << 20]),
        "softmax": of(tf.nn.softmax, [4096, 1024]),
        "sum_last": of(lambda x: tf.reduce_sum(x, 1), [4096, 4096]),
        "sum_first": of(lambda x: tf.reduce_sum(x, 0), [4096, 4096]),
        "layer_norm": of(layer_norm, [4096, 1024], [1024], [1024]),
        "transpose": of(lambda x: tf.transpose(x), [4096, 4096]),
        "max_pool": of(lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"), [8, 112, 112, 64]),
        "small": small,
    }
)
