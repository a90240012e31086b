"""Lets `tf.config.experimental.get_device_details` name the adapter behind a WGPU device.

TensorFlow asks a pluggable device only for its name, and some versions not even for that. The
library knows the driver too.
"""

from __future__ import annotations

import functools
import logging
import types
from typing import Any

from tensorflow_wgpu import _library

log = logging.getLogger("tensorflow_wgpu")


def patch_context(module: types.ModuleType) -> None:
    """Adds details to the answer of `Context.get_device_details` for WGPU devices. If anything is
    not as expected, TensorFlow's own answer stays.
    """
    original = module.Context.get_device_details

    @functools.wraps(original)
    def get_device_details(self: Any, device: Any) -> dict[str, Any]:
        if getattr(device, "device_type", None) != _library.device_type():
            return original(self, device)
        answer, problem = {}, None
        try:
            answer = original(self, device)
        except Exception as e:
            # TensorFlow 2.22 knows nothing of a pluggable device before its first op.
            problem = e
        try:
            return {**answer, **details(device.name)}
        except Exception as e:
            if problem:
                raise problem from e
            log.warning("the adapter of %s is not known (%s: %s)", device, type(e).__name__, e)
            return answer

    module.Context.get_device_details = get_device_details


def details(name: str) -> dict[str, str]:
    """The adapter of a physical device, such as `/physical_device:WGPU:0`."""
    adapter = _library.devices()[name.removeprefix("/physical_device:")]
    return {
        "device_name": adapter["name"],
        "vendor": adapter["vendor"],
        "backend": adapter["backend"],
        "driver": adapter["driver"],
    }
