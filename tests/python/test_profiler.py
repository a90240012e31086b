"""The profiler through TensorFlow: the contents of its traces, their conversion by TensorBoard, and
`tensorflow_wgpu.profile`.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from profiled import converted, rows
from support import WGPU, python


def model() -> keras.Model:
    keras.utils.set_random_seed(3)
    layers = keras.layers
    made = keras.Sequential(
        [
            layers.Input((12, 12, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adam", loss)
    return made


class Terminal(io.StringIO):
    """A file that claims to be a terminal."""

    def isatty(self) -> bool:  # noqa: D102 (io's)
        return True


def data(count: int = 96) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(count, 12, 12, 3)).astype("float32"), rng.integers(0, 4, count)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of three training steps by Keras's callback."""
    folder = tmp_path_factory.mktemp("trace")
    trained, (x, y) = model(), data()
    trained.fit(x, y, batch_size=16, epochs=1, verbose=0)
    callback = keras.callbacks.TensorBoard(folder, profile_batch=(2, 4), write_graph=False)
    trained.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=[callback])
    (path,) = folder.rglob("*.xplane.pb")
    return path


def test_kernel_stats_name_ops_and_shaders(traced: Path):
    found = rows(converted(traced, "kernel_stats"))
    names = {row["kernel_name"].split(" [")[0] for row in found}
    assert "Fused(Conv2D, AddV2, Relu)" in names, names
    assert "Conv2DBackpropFilter" in names, names
    assert all(row["total_duration_us"] > 0 for row in found)
    conv = next(r for r in found if r["kernel_name"].startswith("Fused(Conv2D, AddV2, Relu)"))
    assert conv["occurrences"] == 3, "one for each profiled step"
    assert conv["op_name"].endswith("/conv2d/Relu/fused") or "conv2d" in conv["op_name"]
    assert all(int(n) > 0 for n in conv["grid_dim"].split(","))


def test_framework_op_stats_have_the_device_and_the_host(traced: Path):
    found = rows(converted(traced, "framework_op_stats")[0])
    device = {row["type"] for row in found if row["host_or_device"] == "Device"}
    host = {row["type"] for row in found if row["host_or_device"] == "Host"}
    assert {"_WgpuFusedConv2D", "_WgpuFusedMatMul", "MatMul"} <= device, device
    assert {"_WgpuFusedConv2D", "MatMul"} <= host, host


def test_the_overview_has_steps(traced: Path):
    overview = converted(traced, "overview_page")
    facts = {key: value for table in overview for key, value in table.get("p", {}).items()}
    assert float(facts["steptime_ms_average"]) > 0
    assert float(facts["device_compute_time_ms_avg"]) > 0
    assert facts["hardware_type"] == "GPU"
    messages = [row["message"] for t in overview for row in rows(t) if "message" in row]
    assert not any("No step marker" in message for message in messages), messages


def test_memory_is_profiled(traced: Path):
    profile = converted(traced, "memory_profile")
    ours = profile["memoryProfilePerAllocator"]["PluggableDevice_0_bfc"]
    assert int(ours["profileSummary"]["peakBytesUsageLifetime"]) > 0
    assert ours["sampledTimelineSnapshots"]


def test_the_trace_has_lines_for_the_gpu_and_the_host(traced: Path):
    events = converted(traced, "trace_viewer")["traceEvents"]
    lines = {
        event["args"]["name"]
        for event in events
        if event.get("ph") == "M" and event["name"] in ("thread_name", "process_name")
    }
    assert {"Dispatches", "Copies", "Steps"} <= lines, lines
    assert any(line.startswith("/device:GPU:0 (WGPU: ") for line in lines), lines
    named = [e for e in events if e.get("name", "").startswith("Fused(Conv2D")]
    assert named
    assert {"bytes_accessed", "tf_op", "shader", "holds"} <= set(named[0]["args"])
    assert any(int(e["args"].get("float_operations", 0)) > 0 for e in named)
    # Our events are merged into TensorFlow's line of the same thread, not beside it.
    threads = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    launches = {threads[e["tid"]] for e in events if e.get("name") == "WGPU enqueue"}
    assert any(name.startswith("tf_Compute") for name in launches), launches


def test_a_session_of_ones_own_sees_eager_ops(tmp_path: Path):
    x = np.ones((32, 32), "float32")
    with tf.device(WGPU):
        a = tf.constant(x)
        tf.profiler.experimental.start(str(tmp_path))
        with tf.profiler.experimental.Trace("step", step_num=1, _r=1):
            tf.linalg.matmul(a, a).numpy()
        tf.profiler.experimental.stop()
    (path,) = tmp_path.rglob("*.xplane.pb")
    names = [row["kernel_name"] for row in rows(converted(path, "kernel_stats"))]
    assert any(name.startswith("MatMul [") for name in names), names
    operations = [e["name"] for e in converted(path, "trace_viewer")["traceEvents"] if "name" in e]
    assert "MemcpyD2H" in operations


def test_profile_tells_what_took_how_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trained, (x, y) = model(), data()
    trained.fit(x, y, batch_size=32, verbose=0)
    with tensorflow_wgpu.profile() as profile:
        trained.fit(x, y, batch_size=32, verbose=0)
    (device,) = profile.devices
    assert device.device == "WGPU:0"
    by_name = {row.name.split(" [")[0]: row for row in device.rows}
    conv = by_name["Fused(Conv2D, AddV2, Relu)"]
    assert conv.count == 3
    assert conv.flops == 3 * 2 * 32 * 10 * 10 * 8 * 3 * 3 * 3
    assert 0 < device.busy <= device.wall
    assert device.pipelines == 0, "everything was compiled before"
    assert "Conv2D" in device.tensors[0][2] or device.tensors[0][0] > 0
    profile.table(limit=3)
    text = capsys.readouterr().out
    assert "WGPU:0" in text
    assert "more rows take" in text
    assert "GB/s" in text
    assert text.count("\n") < 30
    profile.table(limit=2, file=(terminal := Terminal()))
    assert "[" in terminal.getvalue().replace("\x1b[", ""), "brackets are no markup"
    profile.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert any(e["name"].startswith("Fused(Conv2D") and e["args"]["flops"] for e in complete)
    assert all(e["dur"] >= 0 for e in complete)
    profile.plot(tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")


def test_profile_tells_fallbacks_and_compilation():
    with tensorflow_wgpu.profile() as profile, tf.device(WGPU):
        soft = tf.config.get_soft_device_placement()
        tf.config.set_soft_device_placement(True)
        try:

            @tf.function
            def program(x: tf.Tensor) -> tf.Tensor:
                # TensorFlow has no GPU kernel for it, and neither have we.
                third = tf.raw_ops.NthElement(input=x, n=tf.constant(3))
                return third * tf.reduce_sum(tf.sinh(x) + 0.37)

            program(tf.constant(np.linspace(0, 1, 37, dtype="float32"))).numpy()
        finally:
            tf.config.set_soft_device_placement(soft)
    assert any("NthElement" in line for line in profile.fallbacks), profile.fallbacks
    assert profile.devices[0].pipelines > 0
    assert " compiled in " in str(profile)


def test_one_profiler_at_a_time(tmp_path: Path):
    with tensorflow_wgpu.profile():
        with pytest.raises(RuntimeError, match="one profiler at a time"):
            tensorflow_wgpu.profile().__enter__()
        # TensorFlow's own profiler continues without the device.
        tf.profiler.experimental.start(str(tmp_path))
        tf.profiler.experimental.stop()
    with tensorflow_wgpu.profile() as profile, tf.device(WGPU):
        tf.add(tf.ones([8]), 1.0).numpy()
    assert profile.devices[0].dispatches > 0


def test_warmup_compiles_and_changes_nothing():
    trained, (x, y) = model(), data(32)
    before = trained.get_weights()
    assert tensorflow_wgpu.warmup(trained, x, y) >= 0
    for mine, theirs in zip(before, trained.get_weights()):
        np.testing.assert_array_equal(mine, theirs)
    assert int(trained.optimizer.iterations.numpy()) == 0
    counts = tensorflow_wgpu.statistics()["WGPU:0"]["pipelines"]
    trained.fit(x, y, batch_size=32, verbose=0)
    assert tensorflow_wgpu.statistics()["WGPU:0"]["pipelines"] == counts
    with tf.device(WGPU):
        weight = tf.Variable(tf.ones([5, 7]))

        @tf.function
        def step(value: tf.Tensor) -> tf.Tensor:
            weight.assign_add(tf.math.erfinv(value))
            return tf.reduce_sum(weight)

        value = tf.fill([5, 7], 0.25)
        assert tensorflow_wgpu.warmup(step, value) > 0, "erfinv is nobody else's"
        np.testing.assert_array_equal(weight.numpy(), np.ones((5, 7), "float32"))


def test_profile_without_a_device_says_so():
    done = python(
        """
        import os
        os.environ["TF_WGPU_VISIBLE_DEVICES"] = "-1"
        import tensorflow_wgpu
        for use in (lambda: tensorflow_wgpu.profile().__enter__(),
                    lambda: tensorflow_wgpu.warmup(lambda: None)):
            try:
                use()
            except RuntimeError as error:
                print(error)
        """
    )
    assert done.stdout.count("TensorFlow sees no WGPU device") == 2, done
