"""The Python side of the TensorFlow plug-in `WGPU`: it finds the library, has a doctor, and patches
Keras as needed.

TensorFlow finds and loads the library by itself, so that `import tensorflow` is all that a program
needs. This package has `python -m tensorflow_wgpu`, which checks whether everything works.
`tensorflow_wgpu.fallbacks` lists the ops of a program that run on the CPU,
`tensorflow_wgpu.statistics` counts the devices' work, and `tensorflow_wgpu.profile` measures how
long each part takes. `tensorflow_wgpu.warmup` compiles a program's shaders ahead,
`tensorflow_wgpu.explain` tells what the optimizer fused, and why it left other nodes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorflow_wgpu._explain import Decision, Explanation, Placement, explain
from tensorflow_wgpu._fallbacks import Fallback, FallbackError, Fallbacks, fallbacks
from tensorflow_wgpu._library import library_path, report, statistics
from tensorflow_wgpu._profile import Profile, profile
from tensorflow_wgpu._warmup import warmup

__all__ = [
    "Decision",
    "Explanation",
    "Fallback",
    "FallbackError",
    "Fallbacks",
    "Placement",
    "Profile",
    "__version__",
    "explain",
    "fallbacks",
    "library_path",
    "profile",
    "report",
    "statistics",
    "warmup",
]


#: The version of the package.
__version__: str

if not TYPE_CHECKING:
    # Otherwise type checkers would accept any name as an attribute of the module.
    def __getattr__(name: str) -> str:
        if name == "__version__":
            from importlib.metadata import version

            return version("tensorflow-wgpu")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
