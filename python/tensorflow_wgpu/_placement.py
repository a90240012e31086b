"""Determines where TensorFlow will run ops that are built or called now. Asks TensorFlow's modules,
which must be imported already.

These are internals of TensorFlow. If they have changed, the answer is "not on WGPU", with one
warning, so that the caller leaves things as they are.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import Any

from tensorflow_wgpu._library import device_type

log = logging.getLogger("tensorflow_wgpu")


def has_wgpu() -> bool:
    """Whether TensorFlow sees a WGPU device that the program did not hide."""
    try:
        return bool(_context().get_visible_devices(device_type()))
    except Exception as e:
        _warn(f"{type(e).__name__}: {e}")
        return False


def scope_device_type() -> str | None:
    """The device type that the innermost `tf.device` asks for, None if there is none.

    A type that has no device counts as none: TensorFlow then chooses freely, unless soft placement
    is off, and then it refuses the op.
    """
    context = _context()
    names: list[Any] = []
    if not context.executing_eagerly():
        graph = sys.modules["tensorflow.python.framework.ops"].get_default_graph()
        for scope in graph._device_function_stack.peek_objs():
            if scope.function is None:
                # `tf.device(None)` leaves the scopes around it.
                break
            names.append(scope.raw_string or scope.display_name)
    # A function's graph does not show the scope around its call, which decides if the graph names
    # none.
    names.append(context.device_name)
    found = next(filter(None, map(type_of, names)), None)
    return found if found is None or _has_device(found) else None


def type_of(device: Any) -> str | None:
    """The device type in an argument of `tf.device`; None if it names none."""
    spec = sys.modules["tensorflow.python.framework.device_spec"]
    if isinstance(device, spec.DeviceSpecV2):
        return device.device_type
    try:
        return spec.DeviceSpecV2.from_string(str(device or "")).device_type
    except ValueError:
        # The argument is a function of the node, or a name that TensorFlow refuses.
        return None


def _has_device(device_type: str) -> bool:
    """Whether there is a device of a type, here or in a cluster that this process has joined."""
    context = _context()
    # Until the context is open there are only the physical devices; it must not be opened here.
    logical = getattr(context, "_logical_devices", None) or ()
    return any(
        device.device_type == device_type for device in (*context.get_visible_devices(), *logical)
    )


def runs_on(*device_types: str) -> bool:
    """Whether there is a WGPU device, and ops that are built or called now will run on it or on one
    of these types.

    TensorFlow prefers WGPU if no `tf.device` says otherwise.
    """
    if not has_wgpu():
        return False
    try:
        return scope_device_type() in (None, device_type(), *device_types)
    except Exception as e:
        _warn(f"{type(e).__name__}: {e}")
        return False


@functools.cache
def kernel_devices(op: str) -> frozenset[str]:
    """The device types that have kernels for the op."""
    kernels = sys.modules["tensorflow.python.framework.kernels"].get_registered_kernels_for_op(op)
    return frozenset(kernel.device_type for kernel in kernels.kernel)


def has_kernel(op: str) -> bool:
    """Whether WGPU has kernels of its own for the op."""
    return device_type() in kernel_devices(op)


@functools.cache
def kernel_types(op: str, attribute: str) -> frozenset:
    """The types of an attribute for which WGPU has kernels of the op."""
    kernels = sys.modules["tensorflow.python.framework.kernels"].get_registered_kernels_for_op(op)
    as_dtype = sys.modules["tensorflow.python.framework.dtypes"].as_dtype
    return frozenset(
        as_dtype(number)
        for kernel in kernels.kernel
        if kernel.device_type == device_type()
        for constraint in kernel.constraint
        if constraint.name == attribute
        for number in constraint.allowed_values.list.type
    )


def _context():
    return sys.modules["tensorflow.python.eager.context"].context()


@functools.cache
def _warn(why: str) -> None:
    log.warning(
        "this TensorFlow does not tell tensorflow-wgpu where it runs (%s); XLA is left as it is",
        why,
    )
