"""Makes eager ops errors in a forked child of a process that uses WGPU devices.

A child of fork has none of the parent's threads. The library refuses every call then, but
TensorFlow waits for some copies with a thread of its own, which the child lacks as well, so it
would wait for ever. So the child's ops are refused before they get there, unless they are placed on
the CPU. Nothing here imports TensorFlow by itself.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from tensorflow_wgpu import _library, _placement

MESSAGE = (
    "forked process: this process was forked from one that uses WGPU devices, and cannot use "
    "them; start processes "
    "with multiprocessing's 'spawn' or 'forkserver' method, fork before TensorFlow is imported, "
    "or run this under "
    "tf.device('CPU:0')"
)


def install() -> None:
    """Watches for forks from now on. Does nothing on Windows, which has no forks. To be called
    once.
    """
    if not hasattr(os, "register_at_fork"):
        return
    # The type is read here, because the library does not answer in a forked child.
    os.register_at_fork(after_in_child=functools.partial(refuse, _library.device_type()))


def refuse(device_type: str) -> None:
    """Makes the entry points of eager execution refuse ops that would run on a device of this
    type.
    """
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is None or not uses_devices(context, device_type):
        return
    for module, name in (
        ("tensorflow.python.pywrap_tfe", "TFE_Py_FastPathExecute"),
        ("tensorflow.python.pywrap_tfe", "TFE_Py_Execute"),
        ("tensorflow.python.framework.constant_op", "convert_to_eager_tensor"),
    ):
        original = getattr(sys.modules.get(module), name, None)
        if original is not None and not hasattr(original, "__wrapped__"):
            setattr(sys.modules[module], name, refusing(context, device_type, original))


def uses_devices(context: Any, device_type: str) -> bool:
    """Whether TensorFlow has opened its devices, and one of this type is among them."""
    current = getattr(context, "_context", None)
    names = getattr(current, "_logical_devices", None) or ()
    return any(device.device_type == device_type for device in names)


def refusing(context: Any, device_type: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `original`: refuses calls outside of a `tf.device` of another type."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _placement.scope_device_type() in (None, device_type):
            raise sys.modules["tensorflow.python.framework.errors_impl"].UnavailableError(
                None, None, MESSAGE
            )
        return original(*args, **kwargs)

    return call
