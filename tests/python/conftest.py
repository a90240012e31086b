"""Loads TensorFlow with the plug-in and refuses to run without a device of the plug-in.

The plug-in is the installed wheel;
`TF_PLUGGABLE_DEVICE_LIBRARY_PATH=target/debug/libtensorflow_wgpu.so` takes a build instead. Tests
run with soft placement off, so that an op that WGPU lacks is an error and not a silent run on the
CPU.
"""

import collections
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
# The CPU's channels-first convolutions come from oneDNN, which TensorFlow enables by itself only on
# some processors.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_wgpu._library import device_type, unoptimized

#: Set in the process of a test that is marked `own_process`.
OWN_PROCESS = "TF_WGPU_TEST_OWN_PROCESS"

# It needs devices of the type GPU, which `TF_WGPU_DEVICE_TYPE=GPU` gives on a TensorFlow without
# CUDA.
collect_ignore = [] if device_type() == "GPU" else ["test_drop_in.py"]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Stops if there is nothing to test: a run that skips all tests must not look like success."""
    del session
    if not wgpu_devices():
        pytest.exit(
            "TensorFlow sees no WGPU device. Install the wheel (make setup) and a Vulkan driver; "
            "`python -m tensorflow_wgpu` says what is missing.",
            returncode=1,
        )
    tf.config.set_soft_device_placement(False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For a test that is marked `sampled(n)`, every n-th case runs on each change, and the others
    at night. For a product of parameters use an n that divides none of their counts.
    """
    seen: collections.Counter[str] = collections.Counter()
    for item in items:
        if sampled := item.get_closest_marker("sampled"):
            name, _, _ = item.nodeid.partition("[")
            if seen[name] % sampled.args[0]:
                item.add_marker(pytest.mark.nightly)
            seen[name] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is marked `own_process` in a process of its own. TensorFlow's allocator
    gives a tensor a free chunk of up to twice its size and counts the whole chunk as used, so a
    peak depends on the tensors of the tests before it.
    """
    if pyfuncitem.get_closest_marker("own_process") is None or OWN_PROCESS in os.environ:
        return None
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={**os.environ, OWN_PROCESS: "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if run.returncode:
        pytest.fail(f"{run.stdout}\n{run.stderr}", pytrace=False)
    return True


def pytest_report_header() -> list[str]:
    """TensorFlow's version and the devices."""
    return [f"tensorflow {tf.__version__}, {len(wgpu_devices())} WGPU device(s)"]


def wgpu_devices() -> list:
    """The physical devices of the plug-in."""
    return tf.config.list_physical_devices(device_type())


@pytest.fixture(autouse=True)
def seeds(request: pytest.FixtureRequest) -> None:
    """Every test starts from the same random state, whatever ran before it."""
    seed = zlib.crc32(request.node.nodeid.encode()) % 2**31
    tf.random.set_seed(seed)
    np.random.seed(seed)


@pytest.fixture(autouse=True)
def optimized() -> Iterator[None]:
    """No graph of a test may be one that the optimizer breaks or gives up. Users get such a graph
    as TensorFlow made it, so nothing else would show the fault.
    """
    before = unoptimized()
    yield
    new = [error for error in unoptimized() if error not in before]
    assert not new, new


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator of numpy values that depends only on the test's name."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))
