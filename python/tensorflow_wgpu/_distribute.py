"""TensorFlow's strategies on WGPU: if `tf.distribute` looks for GPUs and there is none, it takes
WGPU devices.

`MirroredStrategy()` then has a replica on each device, `MultiWorkerMirroredStrategy()` on each
device of its worker, and `ParameterServerStrategy` counts the devices of its workers. Replicas of
one process reduce in the host's memory (`_reduction.py`), workers through TensorFlow's collective
ops. `TF_WGPU_DISTRIBUTE=off` leaves the strategies as they are, `collective` their reductions.
"""

from __future__ import annotations

import functools
import logging
import os
import types
from typing import Any

from tensorflow_wgpu import _library, _reduction

log = logging.getLogger("tensorflow_wgpu")

#: `off`: strategies count only GPUs. `collective`: they reduce in TensorFlow's own way.
VARIABLE = "TF_WGPU_DISTRIBUTE"


def asked() -> str:
    """The value from the environment: `off`, `collective`, or anything else for `on`."""
    return os.environ.get(VARIABLE, "").strip().lower()


def is_off() -> bool:
    """Whether strategies should not see WGPU devices."""
    # Strategies support devices of the type GPU themselves.
    return asked() == "off" or _library.device_type() == "GPU"


def patch_mirrored(module: types.ModuleType) -> None:
    """Patches `MirroredStrategy()`, and the queries of derived strategies about their devices."""
    if asked() not in ("off", "collective"):
        patch_reduction(module)
    if is_off():
        return
    local, listed = module.all_local_devices, module._cluster_spec_to_device_list

    @functools.wraps(local)
    def all_local_devices(num_gpus: int | None = None) -> list[Any]:
        devices = [] if module.config.list_logical_devices("GPU") else _own_devices(module)
        return devices[:num_gpus] or local(num_gpus)

    @functools.wraps(listed)
    def cluster_spec_to_device_list(cluster_spec: Any, num_gpus_per_worker: int) -> list[str]:
        count = 0 if num_gpus_per_worker else _count(module)
        devices = listed(cluster_spec, count or num_gpus_per_worker)
        return [d.replace("device:GPU:", "device:WGPU:") for d in devices] if count else devices

    module.all_local_devices = all_local_devices
    module._cluster_spec_to_device_list = cluster_spec_to_device_list
    patch_gpu_device(module)


def patch_reduction(module: types.ModuleType) -> None:
    """`MirroredStrategy` on several of our devices reduces in the host's memory by default."""
    extended = module.MirroredExtended
    original = getattr(extended, "_make_collective_ops_with_fallbacks", None)
    if original is None:
        log.warning("MirroredStrategy reduces in a way of its own: this TensorFlow has no hook")
        return

    @functools.wraps(original)
    def make_ops(self: Any) -> Any:
        made = original(self)
        kinds = [module.tf_device.DeviceSpec.from_string(d).device_type for d in self._devices]
        ours = len(kinds) > 1 and set(kinds) == {_library.device_type()}
        is_ring = type(made) is module.cross_device_ops_lib.CollectiveAllReduce
        return _reduction.on_the_host(module) if ours and is_ring else made

    extended._make_collective_ops_with_fallbacks = make_ops


def patch_gpu_device(module: types.ModuleType) -> None:
    """WGPU devices are counted when a strategy counts the GPUs among its devices."""
    if is_off():
        return
    original = module._is_gpu_device

    @functools.wraps(original)
    def is_gpu_device(device: str) -> bool:
        kind = module.tf_device.DeviceSpec.from_string(device).device_type
        return kind == "WGPU" or original(device)

    module._is_gpu_device = is_gpu_device


def patch_collective(module: types.ModuleType) -> None:
    """`MultiWorkerMirroredStrategy`: a worker without GPUs takes its WGPU devices."""
    if is_off():
        return
    extended = module.CollectiveAllReduceExtended
    original = extended._initialize_local_devices

    @functools.wraps(original)
    def initialize_local_devices(
        self: Any, cluster_resolver: Any, worker_device: str
    ) -> tuple[tuple[str, ...], str]:
        devices, kind = original(self, cluster_resolver, worker_device)
        # The process's own devices are counted: the logical devices may include other workers'.
        count = _count(module) if kind == "CPU" else 0
        if not count:
            return devices, kind
        return tuple(f"{worker_device}/device:WGPU:{i}" for i in range(count)), "WGPU"

    extended._initialize_local_devices = initialize_local_devices
    patch_gpu_device(module)


def patch_parameter_server(module: types.ModuleType) -> None:
    """`ParameterServerStrategy`: workers without GPUs have their WGPU devices."""
    if is_off():
        return
    extended = module.ParameterServerStrategyV2Extended
    set_num_gpus, worker_devices = extended._set_num_gpus, extended.worker_devices

    def on_wgpu(self: Any) -> int:
        return getattr(self, "_wgpu_devices_per_worker", 0)

    @functools.wraps(set_num_gpus)
    def count(self: Any) -> None:
        set_num_gpus(self)
        if self._num_gpus_per_worker:
            return
        counts: dict[str, int] = {}
        for device in module.config.list_logical_devices("WGPU"):
            spec = module.tf_device.DeviceSpec.from_string(device.name)
            if spec.job == "worker":
                worker = spec.replace(device_type=None, device_index=None)
                counts[worker] = counts.get(worker, 0) + 1
        if len(set(counts.values())) > 1:
            raise ValueError("Mismatched number of WGPU devices per worker")
        self._wgpu_devices_per_worker = next(iter(counts.values()), 0)
        self._num_gpus_per_worker = self._wgpu_devices_per_worker

    def devices(self: Any) -> tuple[str, ...]:
        own = tuple(f"/device:WGPU:{i}" for i in range(on_wgpu(self)))
        return own or worker_devices.fget(self)

    extended._set_num_gpus = count
    extended.worker_devices = property(devices, doc=worker_devices.__doc__)


def patch_multi_device(module: types.ModuleType) -> None:
    """Each replica's share of the next batch waits on its device, as it does with GPUs."""
    if is_off():
        return
    create, spec = module._create_device_dataset, module.MultiDeviceIteratorSpec
    component_specs = spec._component_specs

    @functools.wraps(create)
    def create_device_dataset(
        prototype_ds: Any, incarnation_id: Any, prefetch_buffer_size: int, experimental_slack: bool
    ) -> Any:
        from tensorflow_wgpu import _parked

        device = _parked.device_here()
        if device is None:
            return create(prototype_ds, incarnation_id, prefetch_buffer_size, experimental_slack)
        dataset = _parked.on_device(create(prototype_ds, incarnation_id, 0, False), device)
        if prefetch_buffer_size and experimental_slack:
            return module.prefetch_op._PrefetchDataset(
                dataset, prefetch_buffer_size, slack_period=1
            )
        return dataset.prefetch(prefetch_buffer_size) if prefetch_buffer_size else dataset

    def of_devices(self: Any) -> list[Any]:
        from tensorflow_wgpu import _parked

        first, *iterators = component_specs.fget(self)
        for i, name in enumerate(self._devices):
            if device := _parked.wgpu_device(name):
                element = _parked.spec_on(self._element_spec, device)
                iterators[i] = module.iterator_ops.IteratorSpec(element)
        return [first, *iterators]

    module._create_device_dataset = create_device_dataset
    spec._component_specs = property(of_devices)


def _own_devices(module: types.ModuleType) -> list[Any]:
    return list(module.config.list_logical_devices("WGPU"))


def _count(module: types.ModuleType) -> int:
    """The number of WGPU devices of this process that are not hidden."""
    return len(module.context.context().get_visible_devices("WGPU"))
