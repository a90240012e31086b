"""Checks that the doctor runs in separate processes, because a driver or TensorFlow may crash.

`python -m tensorflow_wgpu._probe library` or `tensorflow`: each prints JSON on the last line of its
output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def library() -> dict[str, Any]:
    """The library's own report, without TensorFlow."""
    from tensorflow_wgpu._library import report

    return report()


def tensorflow() -> dict[str, Any]:
    """TensorFlow's view of the plug-in: its version, its devices, one computation on each."""
    import tensorflow as tf

    from tensorflow_wgpu._library import device_type, report

    devices = [
        d.name.replace("/physical_device:", "")
        for d in tf.config.list_physical_devices(device_type())
    ]
    failures = {}
    for device in devices:
        try:
            with tf.device(device):
                variable = tf.Variable([1.0, 2.0])
                variable.assign_add([1.0, 1.0])
                result = (variable + variable).numpy().tolist()
            if result != [4.0, 6.0]:
                failures[device] = f"[1, 2] + [1, 1], doubled, is {result}"
        except tf.errors.OpError as e:
            failures[device] = f"{type(e).__name__}: {e.message}"
    return {
        "version": tf.__version__,
        "devices": devices,
        "failures": failures,
        "variables": report()["variables"],
        "hooks": "tensorflow_wgpu._hooks" in sys.modules,
    }


def run(name: str, timeout: float = 300) -> dict[str, Any]:
    """Runs a probe in a separate process: returns its `result` or the `error` that ended it, and
    the plug-in's `log`.
    """
    try:
        process = subprocess.run(
            [sys.executable, "-m", "tensorflow_wgpu._probe", name],
            # The plug-in's warnings must appear here, whatever the environment asks for;
            # TensorFlow's are noise.
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"result": None, "error": f"no answer in {timeout:.0f} seconds", "log": []}
    log = [line for line in process.stderr.splitlines() if line.startswith("tensorflow-wgpu: ")]
    if process.returncode == 0:
        return {"result": json.loads(process.stdout.splitlines()[-1]), "error": None, "log": log}
    if process.returncode < 0:
        return {
            "result": None,
            "error": f"the process was killed by signal {-process.returncode}",
            "log": log,
        }
    last = [line for line in process.stderr.splitlines() if line.strip()]
    return {
        "result": None,
        "error": last[-1] if last else f"exit code {process.returncode}",
        "log": log,
    }


if __name__ == "__main__":
    print(json.dumps({"library": library, "tensorflow": tensorflow}[sys.argv[1]]()))
