"""The operands of a case of the self-test: arguments of one type, the same on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tensorflow_wgpu import _fallbacks, _regions
from tensorflow_wgpu._library import device_type


class NotFusedError(Exception):
    """The graph optimizer did not make an op that a case is for."""


class Values:
    """Makes arguments from a seed. With `wide`, values that are float16 on the device are float32:
    the CPU's own float16 kernels add up in float16, and are no reference.
    """

    def __init__(self, seed: int, dtype: str, *, wide: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = tf.as_dtype("float32" if wide else dtype)
        self._given = tf.as_dtype(dtype).as_numpy_dtype
        #: The arguments made, such as `float32[3,4]`, for the report.
        self.made: list[str] = []

    def of(self, array: Any, dtype: Any = None) -> tf.Tensor:
        """A tensor; of the case's type unless `dtype` says otherwise."""
        array = np.asarray(array)
        if dtype is None:
            # Rounded to the device's type first, so that both compute with the same numbers.
            tensor = tf.constant(array.astype(self._given).astype(self.dtype.as_numpy_dtype))
        else:
            tensor = tf.constant(array, dtype)
        name = tf.as_dtype(self._given).name if dtype is None else tensor.dtype.name
        self.made.append(f"{name}{list(tensor.shape)}".replace(" ", ""))
        return tensor

    def normal(self, *shape: int) -> tf.Tensor:
        """Standard normal values."""
        return self.of(self.rng.normal(size=shape))

    def uniform(self, low: float, high: float, *shape: int) -> tf.Tensor:
        """Values in [low, high); whole numbers in an integer type."""
        return self.of(self.rng.uniform(low, high, shape))

    def complex(self, *shape: int) -> tf.Tensor:
        """Standard normal complex values in single precision."""
        parts = self.rng.normal(size=shape) + 1j * self.rng.normal(size=shape)
        return self.of(parts.astype("complex64"), tf.complex64)

    def integers(self, low: int, high: int, *shape: int) -> tf.Tensor:
        """Whole numbers in [low, high) as int64, for indices and labels."""
        return self.of(self.rng.integers(low, high, shape), tf.int64)

    def variable(self, *shape: int) -> tf.Variable:
        """A variable of positive values."""
        return tf.Variable(self.uniform(0.5, 1.5, *shape))

    def fused(self, ops: str, fn: Callable[..., Any], *arguments: Any) -> Any:
        """Calls `fn` as a tf.function, in which the graph optimizer must make each op of `ops`, a
        list separated by blanks, on WGPU.
        """
        with _fallbacks.collected() as graphs:
            result = tf.function(fn)(*arguments)
        made = {node.op for node in _regions.all_nodes(graphs)}
        is_wgpu = any(
            f"device:{device_type()}:" in tensor.device for tensor in tf.nest.flatten(result)
        )
        missing = [op for op in ops.split() if op not in made]
        if is_wgpu and missing:
            raise NotFusedError(f"the graph optimizer made no {missing[0]} of {sorted(made)}")
        return result
