"""The life cycle of a process with devices: other allocators, limits, drivers switched off, forks,
signals, exit.

Each case runs in a separate process with a time limit, because faults here end processes or hang
them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import tensorflow_wgpu
from support import python

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the C library's and kernel's ways of Linux"
)

# Seconds after which a process counts as hanging. A machine may be slow and busy; on an idle one
# none of these takes a tenth of it.
LIMIT = 240

# Computes on WGPU and on the CPU, with a pipeline that takes the driver some time to compile.
COMPUTE = """
import os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
import numpy as np
import tensorflow as tf

def compute():
    a = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")
    def on(device):
        with tf.device(device):
            return tf.nn.softmax(tf.matmul(a, a) / 8).numpy()
    np.testing.assert_allclose(on("WGPU:0"), on("CPU:0"), rtol=1e-4, atol=1e-5)
"""


def program(code: str) -> str:
    """`code` after COMPUTE."""
    return COMPUTE + textwrap.dedent(code)


def passed(code: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    """Runs `code` after COMPUTE in a process that must end well."""
    done = python(program(code), timeout=LIMIT, **env)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-1000:]}{done.stderr[-4000:]}"
    return done


@pytest.mark.parametrize(
    ("library", "package"),
    [("libjemalloc.so.2", "libjemalloc2"), ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4")],
)
def test_another_allocator_may_be_preloaded(library: str, package: str) -> None:
    # The dynamic linker reports a library that it cannot find, and continues.
    probe = subprocess.run(
        ["/bin/true"], env={"LD_PRELOAD": library}, capture_output=True, text=True, check=False
    )
    if probe.stderr:
        why = (
            f"{library} cannot be preloaded ({probe.stderr.strip()}); `apt-get install {package}` "
            "brings it"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    done = passed("compute()\nprint(open('/proc/self/maps').read())", LD_PRELOAD=library)
    assert library.split(".")[0] in done.stdout, "the allocator was not preloaded"


@pytest.mark.parametrize(
    "env",
    [
        {"VK_DRIVER_FILES": "/dev/null"},
        {"VK_LOADER_DRIVERS_SELECT": "nothing*"},
        {"VK_LOADER_DRIVERS_DISABLE": "*"},
    ],
    ids=lambda env: next(iter(env)),
)
def test_drivers_may_be_switched_off(env: dict[str, str]) -> None:
    done = passed(
        """
        assert not tf.config.list_physical_devices("WGPU")
        assert float(tf.reduce_sum(tf.constant([1.0, 2.0]))) == 3.0
        mapped = open("/proc/self/maps").read()
        drivers = ("libvulkan_lvp", "libvulkan_radeon", "libvulkan_intel")
        print([name for name in drivers if name in mapped])
        """,
        **env,
    )
    assert "no WGPU device" in done.stderr
    assert done.stdout.strip() == "[]", "a driver that is switched off was loaded"


def test_the_shield_of_drivers_may_be_switched_off() -> None:
    # Without any driver: whether a driver that is bound to TensorFlow's symbols works depends on
    # both.
    env = {"TF_WGPU_DRIVER_SHIELD": "off", "TF_WGPU_LOG": "info", "VK_DRIVER_FILES": "/dev/null"}
    assert "without a shield" in passed("", **env).stderr


# Keeps the GPU behind until SIGINT comes from another process. Later results must be right.
INTERRUPTED = """
import signal
# A shell's background job begins with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
x = tf.random.uniform([512, 512]) / 512
with tf.device("WGPU:0"):
    x = tf.identity(x)
    v = tf.Variable(tf.zeros([3]))
    @tf.function(autograph=False)
    def chain(x):
        for _ in range(10):
            x = tf.matmul(x, x)
        return x
    chain(x).numpy()
    print("begun", flush=True)
    try:
        WORK
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    v.assign_add(tf.ones([3]))
assert v.numpy().tolist() == [1.0, 1.0, 1.0]
compute()
print("right", flush=True)
"""


@pytest.mark.parametrize(
    "work",
    [
        "while True: tf.matmul(x, x)",
        "while True: chain(x)",
        "while True: [chain(x) for _ in range(200)][-1].numpy()",
    ],
    ids=["eager", "function", "read_back"],
)
def test_ctrl_c_ends_a_loop_while_the_gpu_is_behind(work: str) -> None:
    command = [sys.executable, "-c", program(INTERRUPTED.replace("WORK", work))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            time.sleep(2)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            first = process.stdout.readline()
            took = time.monotonic() - start
            rest, _ = process.communicate(timeout=LIMIT)
        finally:
            process.kill()
    assert process.returncode == 0
    assert first + rest == "interrupted\nright\n"
    # It takes a second on an idle machine, but test machines are not idle. Without the bound it
    # took as long as all of the GPU's earlier work.
    assert took < 5, took


def test_a_second_copy_offers_nothing(tmp_path: Path) -> None:
    copy = shutil.copy(tensorflow_wgpu.library_path(), tmp_path)
    done = passed(
        """
        assert len(tf.config.list_physical_devices("WGPU")) == 1
        compute()
        compute = tf.function(lambda x: tf.nn.relu(x * 2.0 + 1.0))
        with tf.device("WGPU:0"):
            np.testing.assert_array_equal(compute(tf.constant([-1.0, 1.0])), [0.0, 3.0])
        """,
        TF_PLUGGABLE_DEVICE_LIBRARY_PATH=copy,
    )
    assert "tensorflow-wgpu is loaded twice" in done.stderr
    assert copy in done.stderr
    assert "unset TF_PLUGGABLE_DEVICE_LIBRARY_PATH" in done.stderr


# Trains a little within the given number of bytes of address space.
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
"""

TRAIN = """
if tf.config.list_physical_devices("WGPU"):
    import keras
    layers = keras.layers
    model = keras.Sequential([layers.Input((16,)), layers.Dense(32, "relu"), layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.random.default_rng(0).normal(size=(256, 16)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    losses = model.fit(x, y, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0], losses
    compute()
    print("trained")
assert float(tf.reduce_sum(tf.constant([1.0, 2.0]))) == 3.0
"""


@pytest.mark.parametrize("kib", [20_000_000, 12_000_000, 8_000_000])
def test_address_space_may_be_limited(kib: int) -> None:
    done = python(LIMITED.format(bytes=kib << 10) + COMPUTE + TRAIN, timeout=LIMIT)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout[-1000:]}{done.stderr[-4000:]}"
    if kib >= 12_000_000:
        assert "trained" in done.stdout, done.stderr[-4000:]
    elif "trained" not in done.stdout:
        assert "no WGPU device" in done.stderr
        assert "ulimit -v" in done.stderr


# Each call runs in a forked child. The parent prints its outcome: its text, or that it took too
# long.
FORK = """
import os, signal, sys, time

def in_child(call):
    end, out = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            answer = "returned " + str(call())
        except BaseException as e:
            answer = f"raised {type(e).__name__}: {e}"
        os.write(out, " ".join(answer.split())[:500].encode())
        os._exit(0)
    os.close(out)
    start = time.monotonic()
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() - start > 30:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "hung"
        time.sleep(0.01)
    return os.read(end, 1000).decode() or "died"
"""


def test_a_child_of_fork_gets_errors_and_its_parent_none() -> None:
    done = passed(
        FORK
        + textwrap.dedent("""
        compute()
        with tf.device("WGPU:0"):
            x = tf.constant([1.0, 2.0, 3.0])
            v = tf.Variable([1.0, 2.0])
        def placed(f):
            with tf.device("WGPU:0"):
                return f()
        calls = {
            "op on tensors of the device": lambda: placed(lambda: x + x),
            "op on a new tensor": lambda: placed(lambda: tf.constant([4.0]) * 2.0),
            "op without a device": lambda: tf.constant([[4.0]]) @ tf.constant([[4.0]]),
            "read of a tensor": lambda: x.numpy(),
            "read of a variable": lambda: v.numpy(),
            "step of a variable": lambda: v.assign_add([1.0, 1.0]),
            "synchronization": lambda: tf.test.experimental.sync_devices(),
        }
        for name, call in calls.items():
            print(f"{name}: {in_child(call)}", flush=True)
        compute()
        assert (x + x).numpy().tolist() == [2.0, 4.0, 6.0] and v.numpy().tolist() == [1.0, 2.0]
        print("unaffected")
        """)
    )
    lines = done.stdout.strip().splitlines()
    assert lines[-1] == "unaffected"
    assert len(lines) == 8
    for line in lines[:-1]:
        assert ": raised " in line, done.stdout + done.stderr[-4000:]
    assert "forked process" in done.stdout + done.stderr


def test_a_process_may_fork_before_it_imports_tensorflow() -> None:
    code = FORK + textwrap.dedent("""
        import os
        def both():
            exec(os.environ["COMPUTE"], globals())
            compute()
        print(in_child(both))
        both()
        """)
    done = python(code.replace("> 30:", "> 200:"), timeout=2 * LIMIT, COMPUTE=COMPUTE)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == ["returned None"], done.stdout + done.stderr[-4000:]


def test_an_interrupt_ends_a_step_and_not_the_device() -> None:
    passed("""
        import signal
        # A shell's background job begins with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        compute()
        with tf.device("WGPU:0"):
            x = tf.random.normal((256, 256))
            def steps():
                y = x
                for _ in range(100_000):
                    y = tf.linalg.matmul(y, x) / 256.0
                    y.numpy()
            for seconds in (0.2, 0.5, 1.0):
                signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
                # Again and again: Python drops an exception that a signal raises while an object is
                # deleted.
                signal.setitimer(signal.ITIMER_REAL, seconds, 1)
                try:
                    steps()
                except KeyboardInterrupt:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    compute()
                else:
                    raise AssertionError("it was not interrupted")
        """)


# Runs until it is told to end, with work in flight and pipelines being compiled.
BUSY = """
with tf.device("WGPU:0"):
    x = tf.random.normal((128, 128))
    for k in range(1, 1000):
        x = tf.concat([x] * (k % 5 + 1), axis=k % 2)[:128, :128] + tf.reduce_mean(x)
        if k == 20:
            print("busy", flush=True)
        if k > 20:
            x.numpy()
"""


def test_sigterm_ends_a_busy_process(tmp_path: Path) -> None:
    env = {**os.environ, "TF_WGPU_CACHE": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", COMPUTE + BUSY],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "busy\n"
            process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGTERM, stderr[-4000:]
    assert time.monotonic() - start < 30
    # The next process uses the files in the cache, or ignores them.
    passed("compute()", TF_WGPU_CACHE=str(tmp_path))


def test_a_process_may_end_while_pipelines_are_compiled_and_work_is_in_flight() -> None:
    for exit_code in (0, 3):
        done = python(
            program(f"""
            with tf.device("WGPU:0"):
                x = tf.random.normal((128, 128))
                for k in range(2, 9):
                    y = tf.tile(tf.nn.softmax(x @ x, axis=0), [k, 1])
                    sums = tf.cumsum(tf.sort(tf.reverse(y, [k % 2])), axis=k % 2)
                    y = sums + tf.linalg.band_part(y, 3, k)
            import sys
            sys.exit({exit_code})
            """),
            timeout=LIMIT,
            TF_WGPU_CACHE="off",
        )
        assert done.returncode == exit_code, f"{done.returncode}: {done.stderr[-4000:]}"


def test_files_may_be_limited(tmp_path: Path) -> None:
    # As on a full disk: a file cannot be written beyond its first bytes.
    passed(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
        compute()
        """,
        TF_WGPU_CACHE=str(tmp_path / "cache"),
    )
    assert not list(tmp_path.glob("cache/*.tmp"))
