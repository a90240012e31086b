"""`tf.data.experimental.prefetch_to_device` and `copy_to_device` for devices of the type WGPU.

TensorFlow has kernels of datasets for CPUs and GPUs alone, and no way for a plug-in to register
one. So an element is uploaded within a `Dataset.map`, waits on the device, and travels on as a
ticket in host memory, until an iterator is asked for it (`_parked.py`).
"""

from __future__ import annotations

import types
from typing import Any

from tensorflow_wgpu import _library

#: This process's host, as programs write it.
HOST = ("/cpu:0", "cpu:0", "/device:cpu:0")


def patch_prefetching(module: types.ModuleType) -> None:
    """Datasets that are copied to a WGPU device."""
    original = module._CopyToDeviceDataset

    def new(
        cls: type, input_dataset: Any, target_device: Any, source_device: str = "/cpu:0"
    ) -> Any:
        # TensorFlow has kernels for devices of the type GPU. A dataset of another place than this
        # process's host is TensorFlow's, too.
        if _library.device_type() == "WGPU" and source_device.lower() in HOST:
            from tensorflow_wgpu import _parked

            if device := _parked.wgpu_device(target_device):
                return _parked.on_device(input_dataset, device)
        return super(original, cls).__new__(cls)

    original.__new__ = new
