"""Measures how fast an adapter's memory and arithmetic are, for drawing a roofline.

Both are the rates that TensorFlow's own ops reach here, not those of a data sheet: the sum of a
large tensor and a number, and a product of large matrices, in float32.
"""

from __future__ import annotations

import functools
from typing import Any

from tensorflow_wgpu._recording import Rates, Recording

#: A measurement is long enough when the GPU takes this many seconds for it.
LONG_ENOUGH = 2e-3
#: How often a measurement is repeated; the shortest time counts.
REPEATS = 4


@functools.cache
def of(device: str) -> Rates | None:
    """The rates of a device such as "WGPU:0", measured at the first call; None if its adapter has
    no timestamps.
    """
    import tensorflow as tf

    with tf.device(device):
        bandwidth = _grown(device, _add, 1 << 20, 1 << 26)
        arithmetic = _grown(device, _product, 256, 8192)
    return Rates(bandwidth, arithmetic) if bandwidth and arithmetic else None


def _add(elements: int) -> tuple[Any, float]:
    """A function that reads and writes `elements` float32 values, and the number of bytes."""
    import tensorflow as tf

    x = tf.zeros([elements])
    return lambda: tf.raw_ops.AddV2(x=x, y=tf.constant(1.0)), 8.0 * elements


def _product(n: int) -> tuple[Any, float]:
    """A function that multiplies matrices of n rows and columns, and its number of operations."""
    import tensorflow as tf

    x = tf.zeros([n, n])
    return lambda: tf.raw_ops.MatMul(a=x, b=x), 2.0 * n**3


def _grown(device: str, make: Any, size: int, most: int) -> float:
    """The best rate, of a size at which the GPU is busy for long enough."""
    while True:
        function, amount = make(size)
        seconds = _seconds(device, function)
        if not seconds:
            return 0.0
        if seconds >= LONG_ENOUGH or size >= most:
            return amount / seconds
        size *= 2


def _seconds(device: str, function: Any) -> float:
    """The shortest GPU time of the longest dispatch of a call."""
    function()  # compiles
    best = 0.0
    for _ in range(REPEATS):
        with Recording() as recorded:
            function()
        found = [d for d in recorded.devices if d.device == device]
        longest = max((row.seconds for d in found for row in d.rows), default=0.0)
        best = min(best or longest, longest)
    return best
