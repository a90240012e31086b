"""Keras 3 on WGPU: weights are loaded and quantized without a second copy of them on the device.

- Keras copies a whole value to the device before it assigns it to a variable. Large values go in
  pieces instead, straight into the variable's memory.
- Keras quantizes to int8 and int4 with NumPy, "for memory efficiency", but puts every value between
  two steps on the device, transposes it there, and gets it back. These values stay in host memory
  instead, where NumPy makes and reads them.
- TensorFlow's allocator gives a tensor a chunk of up to twice its size. The weights that Keras
  makes when it quantizes a layer move to a chunk of about their own size, if there is one.

This affects only Keras's TensorFlow backend, outside of functions.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow_wgpu._keras import vars_of
from tensorflow_wgpu._library import device_type
from tensorflow_wgpu._placement import kernel_types, runs_on, type_of

#: The bytes of a piece. Values of two pieces and more go in pieces.
PIECE = 8 << 20
#: While Keras quantizes, values of this many bytes go straight into the variable's memory, too.
_LARGE = 1 << 20

#: The module in which every Keras 3 knows whether assignments are put off.
_SCOPES = "keras.src.backend.common.stateless_scope"

#: The modes in which Keras quantizes with NumPy.
_MODES = ("int8", "int4")


def patch_variable(module: types.ModuleType) -> None:
    """The module of Keras's variables: large values from the host are assigned in pieces."""
    variable = module.Variable
    original = variable.assign

    @functools.wraps(original)
    def assign(self: Any, value: Any) -> Any:
        if not _goes_in_pieces(module, self, value):
            return original(self, value)
        tf = module.tf
        with tf.device("CPU:0"):
            tensor = self._convert_to_tensor(value, dtype=self._dtype)
        if tuple(tensor.shape) != tuple(self.shape):
            return original(self, value)
        rows = max(1, PIECE * tensor.shape[0] // _bytes(tf, tensor))
        for begin in range(0, tensor.shape[0], rows):
            with tf.device("CPU:0"):
                piece = tensor[begin : begin + rows]
            self._value[begin : begin + rows].assign(piece)
        return tensor

    variable.assign = assign


def _goes_in_pieces(module: types.ModuleType, variable: Any, value: Any) -> bool:
    """Whether a value is so large, and comes from the host, and the variable is on a device."""
    tf, held = module.tf, variable._value
    resource = sys.modules["tensorflow.python.ops.resource_variable_ops"].BaseResourceVariable
    return (
        isinstance(held, resource)
        and _bytes(tf, held) >= (_LARGE if hasattr(_outer, "device") else 2 * PIECE)
        and tf.executing_eagerly()
        and not sys.modules[_SCOPES].in_stateless_scope()
        and type_of(held.device) == device_type()
        and held.dtype in kernel_types("ResourceStridedSliceAssign", "T")
        and (
            type_of(value.device) == "CPU"
            if isinstance(value, tf.Tensor)
            else not isinstance(value, (tf.Variable, module.Variable))
        )
    )


def _bytes(tf: types.ModuleType, tensor: Any) -> int:
    """The bytes of a tensor or a variable, 0 if its shape is not known."""
    elements = tensor.shape.num_elements()
    return (elements or 0) * tf.as_dtype(tensor.dtype).size


#: The device that a layer's variables go to while Keras quantizes it.
_outer = threading.local()


@contextmanager
def _device(name: str | None) -> Iterator[None]:
    """A scope for eager ops."""
    with sys.modules["tensorflow"].device(name or None):
        yield


def patch_layer(module: types.ModuleType) -> None:
    """A module of layers that Keras can quantize: what is between two steps stays on the host. In
    an old Keras that cannot, they stay as they are.
    """
    own = {layer: vars_of(layer) for layer in vars(module).values() if isinstance(layer, type)}
    layers = [layer for layer in own if layer.__module__ == module.__name__]
    if not layers:
        raise AttributeError("a layer")
    for layer in layers:
        if {"quantize", "quantized_build"} <= own[layer].keys():
            layer.quantize = _quantizing_on_the_host(own[layer]["quantize"])
            layer.quantized_build = _building_outside(own[layer]["quantized_build"])


def _quantizing_on_the_host(original: Any) -> Any:
    @functools.wraps(original)
    def quantize(self: Any, mode: Any = None, *args: Any, **kwargs: Any) -> Any:
        if mode not in _MODES or hasattr(_outer, "device") or not _is_eager_on_wgpu():
            return original(self, mode, *args, **kwargs)
        _outer.device = sys.modules["tensorflow.python.eager.context"].context().device_name
        # How many packed weights fit into the place of a float weight, which is freed.
        width = sys.modules["tensorflow"].as_dtype(self.variable_dtype).size
        _outer.freed = width * (2 if mode == "int4" else 1)
        try:
            with _device("CPU:0"):
                return original(self, mode, *args, **kwargs)
        finally:
            del _outer.device, _outer.freed

    return quantize


def _building_outside(original: Any) -> Any:
    @functools.wraps(original)
    def quantized_build(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not hasattr(_outer, "device"):
            return original(self, *args, **kwargs)
        with _device(_outer.device):
            before = {id(variable) for variable in self.variables}
            held = _held()
            result = original(self, *args, **kwargs)
            _tighten([v for v in self.variables if id(v) not in before], held)
            return result

    return quantized_build


#: A chunk is tight if at most the tensor's size divided by this is unused.
_TIGHT = 32
#: The most chunks that are tried for a variable, as far as the float weights made room for them.
_TRIES = 3


def _held() -> int:
    """The bytes of all chunks in use on the device that Keras quantizes on; 0 if TensorFlow cannot
    tell.
    """
    tf = sys.modules["tensorflow"]
    try:
        info = tf.config.experimental.get_memory_info(_outer.device or f"{device_type()}:0")
    except (ValueError, tf.errors.OpError):
        return 0
    return info["current"]


def _tighten(variables: list[Any], before: int) -> None:
    """Moves large new variables of packed weights to other chunks, if more than a small part of the
    chunks that were taken since `before` is unused. They hold zeros, as when they were made.
    """
    tf = sys.modules["tensorflow"]
    values = [v._value for v in variables if isinstance(v._value, tf.Variable)]
    wanted = sum(_bytes(tf, value) for value in values)
    if not before or _held() - before <= wanted + wanted // _TIGHT:
        return
    for value in values:
        size = _bytes(tf, value)
        is_packed = value.dtype in (tf.int8, tf.uint8) and size >= _LARGE
        if not is_packed or type_of(value.device) != device_type():
            continue
        # Tensors in chunks that are too large are kept meanwhile, so that the next one gets
        # another chunk.
        tried = []
        for _ in range(min(_TRIES, _outer.freed - 1)):
            start = _held()
            try:
                tried.append(tf.zeros(value.shape, value.dtype))
            except tf.errors.ResourceExhaustedError:
                return
            if type_of(tried[-1].device) != device_type():
                return
            if _held() - start <= size + size // _TIGHT:
                value.assign(tried[-1])
                break


def _is_eager_on_wgpu() -> bool:
    backend = sys.modules["keras.src.backend"].backend()
    return backend == "tensorflow" and runs_on() and sys.modules["tensorflow"].executing_eagerly()
