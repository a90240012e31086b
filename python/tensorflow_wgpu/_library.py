"""Finds the plug-in's library and reads its report. Knows nothing of TensorFlow."""

from __future__ import annotations

import ctypes
import functools
import json
import os
from pathlib import Path
from typing import Any

from tensorflow_wgpu import _notebook

SUFFIXES = (".so", ".dylib", ".dll")


def library_path() -> Path:
    """Path of the library that TensorFlow loads: the one in `TF_PLUGGABLE_DEVICE_LIBRARY_PATH`, or
    the installed one.

    Raises FileNotFoundError when there is none, and says where it was looked for.
    """
    named = os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH", "")
    folder = Path(named) if named else Path(__file__).parent.parent / "tensorflow-plugins"
    candidates = sorted(folder.iterdir()) if folder.is_dir() else [folder]
    for path in candidates:
        if path.is_file() and path.suffix in SUFFIXES and "tensorflow_wgpu" in path.name:
            return path
    if named:
        raise FileNotFoundError(
            f"TF_PLUGGABLE_DEVICE_LIBRARY_PATH={named} holds no tensorflow_wgpu library; unset it"
        )
    raise FileNotFoundError(f"{folder} holds no tensorflow_wgpu library; install the wheel again")


def report() -> dict[str, Any]:
    """What the library knows: its version, the adapters, the ops and types, the environment, the
    variable API.

    Loads the library when TensorFlow has not done so already, opens each device and tries it out.
    Notebooks show a table of the adapters.
    """
    return _notebook.Report(read("tensorflow_wgpu_report"))


def statistics() -> dict[str, dict[str, int]]:
    """What the devices that TensorFlow opened in this process have done so far: `{"WGPU:0":
    {"dispatches": 12, ...}, ...}`.

    `dispatches` and `bytes` (the lengths of all that dispatches bind), `barriers` between
    dispatches and how many of them data needs (`barriers_needed`), `submissions`, `uploads` and
    `downloads` with the bytes `uploaded` and `downloaded`, how many of both were `unstaged`
    (`TF_WGPU_STAGING=off`), `copies` within the device, `pipelines` compiled, `bind_groups` made,
    and with `TF_WGPU_PAGING` the bytes `paged_out` to host memory and `paged_in` again. They only
    grow, so subtract readings. `bind_groups_held` is the number of bind groups that are kept now,
    and `paged` the bytes that are in host memory now. Kernels run asynchronously: read a result
    (`.numpy()`) first, so that all of its work is counted. Notebooks show a table.
    """
    return _notebook.Counters(read("tensorflow_wgpu_statistics"))


def tuning() -> dict[str, list[dict[str, Any]]]:
    """The times by which `TF_WGPU_AUTOTUNE` has chosen tiles in this process, for each device:
    `{"WGPU:0": [{"class": ..., "candidates": ...}, ...], ...}`. docs/TUNING.md describes them.
    """
    return read("tensorflow_wgpu_tuning")


def devices() -> dict[str, dict[str, str]]:
    """What the devices are that TensorFlow opened in this process: `{"WGPU:0": {"name": ...,
    "vendor": ..., "type": ..., "backend": ..., "driver": ...}, ...}`.
    """
    return read("tensorflow_wgpu_devices")


def unoptimized() -> list[str]:
    """The errors for which the optimizer left graphs of this process as TensorFlow gave them. Each
    is a fault of the plug-in and worth a report.
    """
    return read("tensorflow_wgpu_unoptimized")


@functools.cache
def device_type() -> str:
    """The type by which the TensorFlow of this process knows the devices: `WGPU`, or `GPU` where
    `TF_WGPU_DEVICE_TYPE=GPU` asked for it and could be followed. To be called when TensorFlow is
    imported.
    """
    return read("tensorflow_wgpu_device_type")


def first_device() -> str:
    """The first device, as in `tf.device`: `WGPU:0` or `GPU:0`."""
    return f"{device_type()}:0"


def read(function: str) -> Any:
    """What a function of the library returns, which is JSON that it allocated."""
    library = ctypes.CDLL(str(library_path()))
    getattr(library, function).restype = ctypes.c_void_p
    library.tensorflow_wgpu_free.argtypes = [ctypes.c_void_p]
    text = getattr(library, function)()
    if not text:
        raise RuntimeError(f"the library failed in {function}; the line above says why")
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        library.tensorflow_wgpu_free(text)
