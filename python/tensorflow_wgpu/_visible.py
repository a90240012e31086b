"""`tf.config.set_visible_devices` and `set_memory_growth` for WGPU devices.

TensorFlow knows which devices a program hid, but does not tell a pluggable device when all are
hidden. A WGPU device always allocates memory as it is needed.
"""

from __future__ import annotations

import functools
import logging
import types
from typing import Any

from tensorflow_wgpu import _library

log = logging.getLogger("tensorflow_wgpu")


def patch_context(module: types.ModuleType) -> None:
    """TensorFlow's context."""
    cls = module.Context
    config, set_growth = cls.config, cls.set_memory_growth
    initialize = cls._initialize_physical_devices
    get_config = config.fget

    @functools.wraps(get_config)
    def with_hidden(self: Any) -> Any:
        made = get_config(self)
        for device in _own(self):
            # The counts are of visible devices, and a type without a count is not limited.
            if device.device_type not in made.device_count:
                made.device_count[device.device_type] = 0
        return made

    @functools.wraps(initialize)
    def initialize_physical_devices(self: Any, *args: Any, **kwargs: Any) -> None:
        initialize(self, *args, **kwargs)
        for device in _own(self):
            # Otherwise TensorFlow refuses programs that set it for one of several devices.
            self._memory_growth_map[device] = True

    @functools.wraps(set_growth)
    def set_memory_growth(self: Any, dev: Any, enable: bool) -> None:
        self._initialize_physical_devices()
        if dev in _own(self):
            if not enable:
                _say_that_memory_grows(dev.name)
            return
        set_growth(self, dev, enable)

    cls.config = property(with_hidden, config.fset, config.fdel, config.__doc__)
    cls._initialize_physical_devices = initialize_physical_devices
    cls.set_memory_growth = set_memory_growth


@functools.cache
def _say_that_memory_grows(name: str) -> None:
    log.warning(
        "set_memory_growth(%s, False) changes nothing: a WGPU device takes memory as programs need "
        "it",
        name,
    )


def _own(context: Any) -> list[Any]:
    """Our physical devices."""
    own = _library.device_type()
    return [d for d in context._pluggable_devices or () if d.device_type == own]
