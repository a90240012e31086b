"""What the tests share: run on WGPU and on the CPU and compare, or run a snippet in a process of
its own.

def test_matmul(rng):
    a, b = rng.normal(size=(3, 4)).astype("float32"), rng.normal(size=(4, 5)).astype("float32")
    on_both(tf.matmul, a, b)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from tensorflow_wgpu import _fallbacks, _regions
from tensorflow_wgpu._library import first_device

CPU = "/device:CPU:0"
#: `WGPU:0`, or `GPU:0` under `TF_WGPU_DEVICE_TYPE=GPU`.
DEVICE = first_device()
WGPU = f"/device:{DEVICE}"

# Relative and absolute tolerance by type; all others must be equal.
TOLERANCE = {
    "float64": (1e-12, 1e-12),
    "complex128": (1e-12, 1e-12),
    "float32": (1e-5, 1e-5),
    "complex64": (1e-5, 1e-5),
    "float16": (2e-3, 2e-3),
    "bfloat16": (2e-2, 2e-2),
}


def run_on(device: str, fn: Callable, *arrays: Any, graph: bool = False) -> list[np.ndarray]:
    """Runs `fn` on `device` with the arrays as tensors and returns its results as a flat list of
    arrays.
    """
    with tf.device(device):
        tensors = [tf.constant(a) for a in arrays]
        result = tf.function(fn)(*tensors) if graph else fn(*tensors)
    # Not np.asarray(t): it fails for a bfloat16 scalar.
    return [np.asarray(t.numpy()) for t in tf.nest.flatten(result)]


def on_both(
    fn: Callable,
    *arrays: Any,
    rtol: float | None = None,
    atol: float | None = None,
    graph: bool | None = None,
) -> list[np.ndarray]:
    """Runs `fn` on WGPU and on the CPU and compares dtype, shape and values; returns WGPU's
    results.

    By default it runs on WGPU in eager mode and as a `tf.function`; `graph` chooses one of them.
    """
    want = run_on(CPU, fn, *arrays)
    got: list[np.ndarray] = []
    for mode in (False, True) if graph is None else (graph,):
        got = run_on(WGPU, fn, *arrays, graph=mode)
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert_close(g, w, rtol, atol)
    return got


def assert_close(got: Any, want: Any, rtol: float | None = None, atol: float | None = None) -> None:
    """Fails unless dtype and shape agree, and values do within the type's tolerance; NaN equals
    NaN.
    """
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{got.dtype} came, {want.dtype} was expected"
    assert got.shape == want.shape, f"shape {got.shape} came, {want.shape} was expected"
    default = TOLERANCE.get(want.dtype.name)
    if default is None:
        np.testing.assert_array_equal(got, want)
        return
    wide = "complex128" if np.issubdtype(want.dtype, np.complexfloating) else "float64"
    np.testing.assert_allclose(
        got.astype(wide),
        want.astype(wide),
        rtol=default[0] if rtol is None else rtol,
        atol=default[1] if atol is None else atol,
    )


def normal(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Normal random numbers of a float type."""
    return rng.normal(size=shape).astype(tf.as_dtype(dtype).as_numpy_dtype)


# Ops that compute nothing: handles, arguments and copies between devices.
PLUMBING = {"VarHandleOp", "NoOp", "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv"}


def float_ops(call: Callable[[], Any]) -> dict[str, Counter[str]]:
    """The float ops that each device runs, with their numbers, in the functions that `call` is the
    first to run.

    This is TensorFlow's own record of the graphs that it prepared for each device, after placement
    and optimization.
    """
    with _fallbacks.collected() as graphs:
        call()
    types = {t.as_datatype_enum for t in (tf.float16, tf.bfloat16, tf.float32, tf.float64)}
    ops: dict[str, Counter[str]] = {}
    for node in _regions.all_nodes(graphs):
        if node.op not in PLUMBING and any(attr.type in types for attr in node.attr.values()):
            ops.setdefault(node.device.rpartition("device:")[2], Counter())[node.op] += 1
    return ops


def program(name: str) -> str:
    """The path of a program that tests run. If it is missing, the test is skipped; in CI it
    fails.
    """
    found = shutil.which(name)
    if found is None:
        why = f"this machine has no {name}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return found


def shares_memory() -> bool:
    """Whether WGPU:0 is in the computer's memory: an integrated GPU or a software adapter."""
    adapters = tensorflow_wgpu.report()["adapters"]
    adapter = next(a for a in adapters if str(a["device"]).endswith(":0"))
    return adapter["type"] in ("IntegratedGpu", "Cpu")


def python(
    code: str, *, timeout: float = 300, **env: str | None
) -> subprocess.CompletedProcess[str]:
    """Runs a snippet in a new process. `env` sets variables; None removes one. The caller checks
    returncode, stdout and stderr.
    """
    merged = {**os.environ, **{k: v for k, v in env.items() if v is not None}}
    for name in (k for k, v in env.items() if v is None):
        merged.pop(name, None)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=merged,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
