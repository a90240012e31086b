"""Sums gradients of replicas on WGPU devices of one process: in the host's memory, in buckets.

wgpu shares no memory between devices, so data that goes from one to another is copied through the
host anyway. TensorFlow's collective ops then do 2·(n - 1) copies down and up one after the other,
each queued behind the other work of the receiver's only queue. Here each replica's gradient is
copied down once, as soon as it is computed and while the rest of the backward pass goes on; the CPU
adds, and the sum is copied up once. Small gradients share a copy: a bucket. All of this consists of
TensorFlow's ops, so its executor starts each bucket when its last gradient is computed.

TensorFlow's modules are passed as arguments: nothing here imports TensorFlow.
"""

from __future__ import annotations

import types
from typing import Any

#: A gradient of at least this number of bytes is copied by itself, and a bucket of smaller ones is
#: full, unless `CommunicationOptions(bytes_per_pack=…)` gives another number. `python
#: benches/scaling` shows why.
BYTES_PER_BUCKET = 1 << 20

HOST = "/device:CPU:0"


def in_buckets(tensors: list[Any], limit: int) -> list[list[int]]:
    """The tensors that share a copy, by their positions, in the order in which they come.

    A bucket has one type and ends when it has `limit` bytes; a tensor of at least `limit` bytes, or
    of unknown size, is a bucket by itself.
    """
    full: list[list[int]] = []
    filling: dict[Any, tuple[list[int], int]] = {}
    for position, tensor in enumerate(tensors):
        elements = tensor.shape.num_elements()
        size = None if elements is None else elements * tensor.dtype.size
        if size is None or size >= limit:
            full.append([position])
            continue
        members, bytes_so_far = filling.pop(tensor.dtype, ([], 0))
        members.append(position)
        if bytes_so_far + size >= limit:
            full.append(members)
        else:
            filling[tensor.dtype] = members, bytes_so_far + size
    return full + [members for members, _ in filling.values()]


def on_the_host(module: types.ModuleType) -> Any:
    """The cross-device ops that `module`, TensorFlow's mirrored_strategy, uses by default."""
    lib, utils = module.cross_device_ops_lib, module.cross_device_utils
    values, indexed = module.values, utils.indexed_slices.IndexedSlices
    array_ops, ops = utils.array_ops, utils.ops
    regroup = module.distribute_utils.regroup

    class HostReduction(lib.ReductionToOneDevice):  # type: ignore[misc]
        """Adds on the CPU; `batch_reduce` copies small values together."""

        def __init__(self) -> None:
            super().__init__(reduce_to_device=HOST)

        def batch_reduce_implementation(self, reduce_op: Any, pairs: Any, options: Any) -> Any:
            # The last layers' gradients come first.
            order = [
                i
                for i in reversed(range(len(pairs)))
                if not any(isinstance(v, indexed) for v in pairs[i][0].values)
                and lib._devices_match(*pairs[i], self._canonicalize_devices)
                and pairs[i][0]._devices == pairs[0][0]._devices
            ]
            limit = getattr(options, "bytes_per_pack", 0) or BYTES_PER_BUCKET
            firsts = [pairs[i][0].values[0] for i in order]
            together = [
                [order[k] for k in bucket]
                for bucket in in_buckets(firsts, limit)
                if len(bucket) > 1
            ]
            results: dict[int, Any] = {}
            for bucket in together:
                reduced = self._together(reduce_op, [pairs[i][0] for i in bucket], options)
                results.update(zip(bucket, reduced))
            for i in reversed(range(len(pairs))):
                if i not in results:
                    value, destinations = pairs[i]
                    results[i] = self.reduce_implementation(reduce_op, value, destinations, options)
            return [results[i] for i in range(len(pairs))]

        def _together(self, reduce_op: Any, bucket: list[Any], options: Any) -> list[Any]:
            """Reduces values of one type and of known shapes with one copy."""
            shapes = [value.values[0].shape for value in bucket]
            devices = bucket[0]._devices
            flat = []
            for replica, device in enumerate(devices):
                with ops.device(device):
                    parts = [array_ops.reshape(value.values[replica], [-1]) for value in bucket]
                    flat.append(array_ops.concat(parts, axis=0))
            joined = values.PerReplica(tuple(flat))
            total = self.reduce_implementation(reduce_op, joined, joined, options)
            columns = []
            for device, mine in zip(devices, total.values):
                with ops.device(device):
                    parts = array_ops.split(mine, [s.num_elements() for s in shapes], axis=0)
                    columns.append([array_ops.reshape(p, s) for p, s in zip(parts, shapes)])
            return [regroup(row, wrap_class=values.Mirrored) for row in zip(*columns)]

    return HostReduction()
