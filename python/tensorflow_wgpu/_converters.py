"""TensorFlow's converters, and its interpreter of TFLite models: they get no WGPU device.

Each makes a session or an eager context of its own in C++, with all existing devices, and reads the
memory of its tensors as host memory: on a WGPU device that ends the process. So the library hides
its devices from the thread while such a call runs. The call computes on the CPU, as it does on
machines without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow_wgpu._import_hook import Patch
from tensorflow_wgpu._library import library_path

#: The methods of these modules' classes in which TensorFlow makes devices, or runs ops on them.
METHODS = ("AllocateTensors", "Invoke", "ModifyGraphWithDelegate", "Prepare")


@functools.cache
def _switch() -> Callable[[int], None]:
    switch = ctypes.CDLL(str(library_path())).tensorflow_wgpu_hide_devices
    switch.argtypes, switch.restype = [ctypes.c_int], None
    return switch


@contextmanager
def hidden() -> Iterator[None]:
    """Sessions and contexts that this thread opens meanwhile have no WGPU device."""
    switch = _switch()
    switch(1)
    try:
        yield
    finally:
        switch(0)


def without_devices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function`, so that it sees no WGPU device."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with hidden():
            return function(*args, **kwargs)

    return call


def patch_converter(module: types.ModuleType) -> None:
    """Patches all functions of a module that is written in C++ and calls Python."""
    for name, function in _functions(module).items():
        setattr(module, name, _with_context(without_devices(function)))


def _with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `function`, so that TensorFlow's own context is opened before it. Otherwise a call of
    Python within it could be the first, which would open the context without devices for the whole
    process.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        context = sys.modules.get("tensorflow.python.eager.context")
        if context is not None:
            context.ensure_initialized()
        return function(*args, **kwargs)

    return call


def patch_library(module: types.ModuleType) -> None:
    """Patches the functions of a module that is written in C++, and the methods of its classes."""
    for name, function in _functions(module).items():
        setattr(module, name, without_devices(function))
    for cls in [value for value in vars(module).values() if isinstance(value, type)]:
        for name in METHODS:
            method = vars(cls).get(name)
            if method is not None and not isinstance(method, types.FunctionType):
                setattr(cls, name, without_devices(method))


def _functions(module: types.ModuleType) -> dict[str, Callable[..., Any]]:
    """A module's functions that are written in C++; none if the module was patched under another
    name.
    """
    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, types.BuiltinFunctionType) and not name.startswith("__")
    }
    wrapped = any(hasattr(value, "__wrapped__") for value in vars(module).values())
    if not found and not wrapped:
        raise AttributeError("functions")
    return found


_LITE = "tensorflow.lite.python."
_INTERPRETER = "_pywrap_tensorflow_interpreter_wrapper"
_CALIBRATION = "_pywrap_tensorflow_lite_calibration_wrapper"

PATCHES: dict[str, Patch] = {
    # TFLite's converter, up to 2.17 and from 2.18 on.
    "tensorflow.python._pywrap_toco_api": patch_converter,
    "tensorflow.compiler.mlir.lite.python._pywrap_converter_api": patch_converter,
    "tensorflow.compiler.mlir.quantization.tensorflow.python.pywrap_quantize_model": (
        patch_converter
    ),
    "tensorflow.python._pywrap_mlir": patch_library,
    # The libraries have the new names; programs import them by the old names.
    f"{_LITE}{_INTERPRETER}": patch_library,
    f"{_LITE}{_CALIBRATION}": patch_library,
    f"{_LITE}interpreter_wrapper.{_INTERPRETER}": patch_library,
    f"{_LITE}optimize.{_CALIBRATION}": patch_library,
}
