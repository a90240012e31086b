"""The Python side of the TensorFlow plug-in `WGPU`: where its library is, a doctor, and what Keras
needs.

TensorFlow finds and loads the library by itself, so that `import tensorflow` is all a program
needs. This package is for `python -m tensorflow_wgpu`, which tells whether everything works, and
for `tensorflow_wgpu.fallbacks`, which tells which ops of a program run on the CPU, and
`tensorflow_wgpu.statistics`, which counts what the devices did, and for `tensorflow_wgpu.profile`,
which tells what took how long. `tensorflow_wgpu.warmup` compiles a program's shaders ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorflow_wgpu._fallbacks import Fallback, FallbackError, Fallbacks, fallbacks
from tensorflow_wgpu._library import library_path, report, statistics
from tensorflow_wgpu._profile import Profile, profile
from tensorflow_wgpu._warmup import warmup

__all__ = [
    "Fallback",
    "FallbackError",
    "Fallbacks",
    "Profile",
    "__version__",
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
    # Type checkers would take any name for one of the module's.
    def __getattr__(name: str) -> str:
        if name == "__version__":
            from importlib.metadata import version

            return version("tensorflow-wgpu")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
