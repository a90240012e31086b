"""Traces of ResNet50 and of a transformer by Keras's callback, in xprof's converter and on
TensorBoard's pages in a headless Chromium.

`TF_WGPU_TRACES=FOLDER` checks traces of `profiled.py` instead, in FOLDER/MODEL: `make profiles`
does so with those of other TensorFlows. Tables of the pages come from Google's chart library, which
a machine without the internet cannot load; their rows are the converter's.
`TF_WGPU_PICTURES=docs/pictures` keeps the pictures of ResNet50's pages.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from profiled import MODELS, PROFILED, converted, found, rows, trace

pytestmark = pytest.mark.nightly

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SERVER = "import sys; from xprof.server import main; sys.exit(main())"
#: Kernels of a training step.
KERNELS = {
    "resnet50": {"Fused(Conv2D, AddV2)", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MaxPool"},
    "transformer": {"_WgpuFusedAttention", "_WgpuFusedAttentionGrad", "GatherV2", "MatMul"},
}

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="no chromium (apt install chromium)"
)


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    """A model."""
    return request.param


@pytest.fixture(scope="module")
def path(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its trace."""
    if taken := os.environ.get("TF_WGPU_TRACES"):
        return found(Path(taken) / name)
    return trace(name, tmp_path_factory.mktemp(name))


@pytest.fixture(scope="module")
def address(path: Path) -> Iterator[str]:
    """The address at which xprof serves the trace."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = path.parents[4]
    command = [sys.executable, "-c", SERVER, "--logdir", str(folder), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        base = f"http://localhost:{port}"
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{base}/data/plugin/profile/runs", timeout=5).read()
                break
            except OSError:
                time.sleep(0.5)
        try:
            yield base
        finally:
            server.terminate()


def run_of(path: Path) -> str:
    """The trace's name among the server's runs."""
    return f"{path.parents[3].name}/{path.parent.name}"


def browse(url: str, *what: str) -> bytes:
    """Opens a page in Chromium with an option for the action."""
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1600,1000",
        "--virtual-time-budget=30000",
        *what,
        url,
    ]
    return subprocess.run(command, capture_output=True, timeout=180, check=True).stdout


def picture(url: str, file: str, tmp_path: Path) -> bytes:
    """A picture of a page."""
    kept = os.environ.get("TF_WGPU_PICTURES") if file.startswith("resnet50") else None
    path = Path(kept) / file.replace("resnet50", "profiler") if kept else tmp_path / file
    browse(url, f"--screenshot={path.resolve()}")
    return path.read_bytes()


def test_kernel_stats_have_each_kernel(name: str, path: Path):
    kernels = rows(converted(path, "kernel_stats"))
    counts: dict[str, float] = {}
    for row in kernels:
        kernel = row["kernel_name"].split(" [")[0]
        counts[kernel] = counts.get(kernel, 0) + row["occurrences"]
    assert KERNELS[name] <= set(counts), counts
    steps = PROFILED[1] - PROFILED[0] + 1
    assert all(counts[kernel] % steps == 0 for kernel in KERNELS[name]), counts
    assert all(row["total_duration_us"] > 0 for row in kernels)
    assert all(int(n) > 0 for row in kernels for n in row["grid_dim"].split(","))


def test_framework_ops_are_the_devices_and_the_hosts(name: str, path: Path):
    stats = rows(converted(path, "framework_op_stats")[0])
    on = {
        place: {row["type"] for row in stats if row["host_or_device"] == place}
        for place in ("Device", "Host")
    }
    op = {"resnet50": "Conv2DBackpropFilter", "transformer": "_WgpuFusedAttentionGrad"}[name]
    assert op in on["Device"]
    assert op in on["Host"]


def test_the_overview_tells_steps_and_device_time(path: Path):
    overview = converted(path, "overview_page")
    facts = {key: value for table in overview for key, value in table.get("p", {}).items()}
    step, device = (
        float(facts[key]) for key in ("steptime_ms_average", "device_compute_time_ms_avg")
    )
    assert 0 < device <= 1.05 * step, facts


def test_memory_has_a_timeline_and_a_peak(path: Path):
    ours = converted(path, "memory_profile")["memoryProfilePerAllocator"]["PluggableDevice_0_bfc"]
    assert int(ours["profileSummary"]["peakBytesUsageLifetime"]) > 0
    assert ours["sampledTimelineSnapshots"]


def test_the_trace_tells_kernels_copies_and_the_host(name: str, path: Path):
    events = converted(path, "trace_viewer")["traceEvents"]
    lines = {e["args"]["name"] for e in events if e.get("ph") == "M" and "name" in e["args"]}
    assert {"Dispatches", "Copies", "Steps"} <= lines, lines
    # TensorFlow's own events of the host have only the op's name.
    named = [e for e in events if " [" in e.get("name", "")]
    named = [e for e in named if e["name"].split(" [")[0] in KERNELS[name]]
    assert named
    assert all({"bytes_accessed", "tf_op", "shader"} <= set(e["args"]) for e in named)
    counted = {e["name"].split(" [")[0] for e in named if "float_operations" in e["args"]}
    # Ops that only move values count nothing.
    assert KERNELS[name] - {"GatherV2"} <= counted, counted


@needs_chromium
def test_the_overviews_page_shows_device_time(name: str, address: str, path: Path, tmp_path: Path):
    url = f"{address}/?run={run_of(path)}&tag=overview_page&host=vm"
    text = re.sub(r"<[^>]+>", " ", browse(url, "--dump-dom").decode())
    shown = re.search(r"Device Compute Time\s+\(.*?\)\s+([\d.]+) ms", re.sub(r"\s+", " ", text))
    assert shown, text[:2000]
    assert float(shown[1]) > 0
    assert len(picture(url, f"{name}-overview.png", tmp_path)) > 30_000


@needs_chromium
def test_the_trace_viewers_page_shows_work(name: str, address: str, path: Path, tmp_path: Path):
    host = path.name.removesuffix(".xplane.pb")
    base = "/data/plugin/profile"
    data = f"{base}/data?run={run_of(path)}&tag=trace_viewer@&host={host}"
    query = f"is_streaming=true&is_oss=true&trace_data_url={urllib.parse.quote(data, safe='')}"
    url = f"{address}{base}/trace_viewer_index.html?{query}"
    text = browse(url, "--dump-dom").decode()
    for shown in ("/device:GPU:0 (WGPU: ", "Dispatches", "Copies", "Steps", "wgpu-submit"):
        assert shown in text, shown
    # An empty page is a sixth of this.
    assert len(picture(url, f"{name}-trace.png", tmp_path)) > 50_000
