"""`tf.data.experimental.prefetch_to_device` and `copy_to_device` for devices of the type WGPU.

TensorFlow has kernels of datasets only for CPUs and GPUs, and no interface for a plug-in to
register one. So an element is uploaded within a `Dataset.map` and waits on the device. A ticket in
host memory stands for it until an iterator is asked for it (`_parked.py`).
"""

from __future__ import annotations

import types
from typing import Any

from tensorflow_wgpu import _library

#: This process's host, in the notations that programs use.
HOST = ("/cpu:0", "cpu:0", "/device:cpu:0")


def patch_prefetching(module: types.ModuleType) -> None:
    """Makes `prefetch_to_device` and `copy_to_device` work for a WGPU device."""
    original = module._CopyToDeviceDataset

    def new(
        cls: type, input_dataset: Any, target_device: Any, source_device: str = "/cpu:0"
    ) -> Any:
        # TensorFlow has kernels for devices of the type GPU. A dataset whose source is not this
        # process's host is left to TensorFlow, too.
        if _library.device_type() == "WGPU" and source_device.lower() in HOST:
            from tensorflow_wgpu import _parked

            if device := _parked.wgpu_device(target_device):
                return _parked.on_device(input_dataset, device)
        return super(original, cls).__new__(cls)

    original.__new__ = new
