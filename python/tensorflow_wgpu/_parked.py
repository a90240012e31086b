"""Elements of datasets that wait on a device. Imports TensorFlow: see `_prefetch.py`."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from tensorflow.python.data.util import nest
from tensorflow.python.eager import context
from tensorflow.python.framework import composite_tensor, kernels, ops

from tensorflow_wgpu import _own_ops

PARK, PARKED = "_WgpuPark", "_WgpuParked"

LAST = "prefetch_to_device and copy_to_device must be the last transformation of a dataset"

tf.no_gradient(PARK)
tf.no_gradient(PARKED)


def wgpu_device(name: Any) -> str | None:
    """The full name of a device of the type WGPU; None for others."""
    with tf.Graph().as_default(), tf.device(name):
        spec = tf.DeviceSpec.from_string(tf.no_op().device)
    return spec.to_string() if spec.device_type == "WGPU" else None


def device_here() -> str | None:
    """The same for the device of the `tf.device` scope here."""
    return wgpu_device(
        context.context().device_name if tf.executing_eagerly() else tf.no_op().device
    )


@functools.cache
def types() -> frozenset[tf.DType]:
    """The types that can wait on a device."""
    rows = kernels.get_registered_kernels_for_op(PARK).kernel
    found = (row.constraint[0].allowed_values.list.type[0] for row in rows)
    return frozenset(map(tf.as_dtype, found))


class Parked(composite_tensor.CompositeTensor):
    """A tensor that waits on a device, as datasets carry it."""

    def __init__(self, ticket: tf.Tensor, spec: ParkedSpec) -> None:
        """`ticket` is the result of its op."""
        self.ticket = ticket
        self._spec = spec

    @property
    def _type_spec(self) -> ParkedSpec:
        return self._spec


class ParkedSpec(tf.TypeSpec):
    """The type of an element that waits. Taking the element from an iterator gives the tensor."""

    __slots__ = ("device", "dtype", "shape")

    def __init__(self, shape: tf.TensorShape, dtype: tf.DType, device: str) -> None:
        """Describes a tensor of this shape and type on that device."""
        self.shape, self.dtype, self.device = tf.TensorShape(shape), dtype, device

    @property
    def value_type(self) -> type:
        """The type that Python sees for such an element."""
        return tf.Tensor

    @property
    def _component_specs(self) -> tf.TensorSpec:
        return tf.TensorSpec([], tf.string)

    def _serialize(self) -> tuple[Any, ...]:
        return self.shape, self.dtype, self.device

    def _to_legacy_output_shapes(self) -> tf.TensorShape:
        return self.shape

    # The caller makes a plain tensor's type of the result, and would take tickets for elements.
    def _to_legacy_output_classes(self) -> Any:
        raise TypeError(LAST)

    def _batch(self, _: int | None) -> Any:
        raise TypeError(f"{LAST}; no batch may follow")

    def _unbatch(self) -> Any:
        raise TypeError(f"{LAST}; no unbatch may follow")

    def _to_batched_tensor_list(self, _: Any) -> Any:
        raise TypeError(f"{LAST}; no unbatch may follow")

    def park(self, value: tf.Tensor) -> Parked:
        """Uploads a tensor."""
        with tf.device(self.device):
            (ticket,) = _own_ops.call(PARK, {"value": value}, self.dtype)
        return Parked(ticket, self)

    def _to_components(self, value: Parked | tf.Tensor) -> tf.Tensor:
        return (value if isinstance(value, Parked) else self.park(value)).ticket

    def _from_components(self, components: tf.Tensor) -> tf.Tensor:
        # TensorFlow places the ops behind an iterator beside the iterator.
        with ops.colocate_with(None, ignore_existing=True), tf.device(self.device):
            (value,) = _own_ops.call(PARKED, {"ticket": components}, self.dtype)
        if not tf.executing_eagerly():
            value.set_shape(self.shape)
        return value


def spec_on(spec: Any, device: str) -> Any:
    """The type of elements like `spec`, with those tensors on the device that it can hold."""

    def parked(part: Any) -> Any:
        if isinstance(part, tf.TensorSpec) and part.dtype in types():
            return ParkedSpec(part.shape, part.dtype, device)
        return part

    return nest.map_structure(parked, spec)


def on_device(dataset: tf.data.Dataset, device: str) -> tf.data.Dataset:
    """The dataset, with those tensors on the device that it can hold."""
    spec = spec_on(dataset.element_spec, device)

    def parked(part: Any, value: Any) -> Any:
        return part.park(value) if isinstance(part, ParkedSpec) else value

    @tf.autograph.experimental.do_not_convert
    def upload(*element: Any) -> Any:
        # `map` unpacks a tuple into arguments.
        whole = element if type(spec) is tuple else element[0]
        return nest.map_structure(parked, spec, whole)

    return dataset.map(upload)
