"""The Vulkan layer of tests/fault_layer, which makes calls fail, for processes of the tests."""

from __future__ import annotations

import os
from pathlib import Path

import layers
import support


def behind(directory: Path) -> dict[str, str]:
    """Variables for a process behind the layer, whose manifest goes into `directory`."""
    support.program("cargo")
    return {**os.environ, **layers.behind_faults(directory)}
