"""`get_memory_info` and `reset_memory_stats` while tensors may live in host memory.

With `TF_WGPU_PAGING` TensorFlow allocates each tensor by itself, and its allocator for that counts
nothing. The library knows what is in device memory.
"""

from __future__ import annotations

import functools
import re
import types
from typing import Any

from tensorflow_wgpu import _library


def patch_context(module: types.ModuleType) -> None:
    """TensorFlow's context."""
    cls = module.Context
    info, reset = cls.get_memory_info, cls.reset_memory_stats

    @functools.wraps(info)
    def get_memory_info(self: Any, dev: str) -> dict[str, int]:
        found = info(self, dev)
        return _library.read("tensorflow_wgpu_memory")[name] if (name := _own(dev)) else found

    @functools.wraps(reset)
    def reset_memory_stats(self: Any, dev: str) -> None:
        if not _own(dev):
            reset(self, dev)
            return
        # TensorFlow's own errors about names of devices.
        info(self, dev)
        _library.read("tensorflow_wgpu_reset_peaks")

    cls.get_memory_info = get_memory_info
    cls.reset_memory_stats = reset_memory_stats


def _own(device: str) -> str | None:
    """TensorFlow's short name of one of our devices; None for any other."""
    own = _library.device_type()
    found = re.search(rf"(?:^|[/:]){own}:(\d+)$", str(device), re.IGNORECASE)
    return found and f"{own}:{int(found[1])}"
