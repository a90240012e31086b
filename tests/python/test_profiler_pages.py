"""TensorBoard's profile pages of a trace of ours, in a headless Chromium.

Tables of the pages come from Google's chart library, which a machine without the internet does not
get; `test_profiler.py` looks at their rows. `TF_WGPU_PICTURES=docs/pictures` keeps the pictures.
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
from test_profiler import traced  # noqa: F401 (a fixture)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SERVER = "import sys; from xprof.server import main; sys.exit(main())"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None and "CI" not in os.environ, reason="no chromium (apt install chromium)"
)


@pytest.fixture(scope="module")
def address(traced: Path) -> Iterator[str]:  # noqa: F811
    """Where xprof serves the trace."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = traced.parents[4]
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


def run_of(traced: Path) -> str:  # noqa: F811
    """The trace's name among the server's runs."""
    return f"{traced.parents[3].name}/{traced.parent.name}"


def browse(url: str, *what: str) -> bytes:
    """Opens a page and has Chromium do something with it."""
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


def picture(url: str, name: str, tmp_path: Path) -> bytes:
    """A picture of a page."""
    kept = os.environ.get("TF_WGPU_PICTURES")
    path = (Path(kept) if kept else tmp_path) / name
    browse(url, f"--screenshot={path.resolve()}")
    return path.read_bytes()


def test_the_overview_shows_device_time(address: str, traced: Path, tmp_path: Path):  # noqa: F811
    url = f"{address}/?run={run_of(traced)}&tag=overview_page&host=vm"
    text = re.sub(r"<[^>]+>", " ", browse(url, "--dump-dom").decode())
    found = re.search(r"Device Compute Time\s+\(.*?\)\s+([\d.]+) ms", re.sub(r"\s+", " ", text))
    assert found, text[:2000]
    assert float(found[1]) > 0
    assert len(picture(url, "profiler-overview.png", tmp_path)) > 30_000


def test_the_trace_viewer_shows_work(address: str, traced: Path, tmp_path: Path):  # noqa: F811
    host = traced.name.removesuffix(".xplane.pb")
    base = "/data/plugin/profile"
    data = f"{base}/data?run={run_of(traced)}&tag=trace_viewer@&host={host}"
    query = f"is_streaming=true&is_oss=true&trace_data_url={urllib.parse.quote(data, safe='')}"
    url = f"{address}{base}/trace_viewer_index.html?{query}"
    text = browse(url, "--dump-dom").decode()
    for shown in ("/device:GPU:0 (WGPU: ", "Dispatches", "Copies", "Steps", "wgpu-submit"):
        assert shown in text, shown
    # An empty page is a sixth of this.
    assert len(picture(url, "profiler-trace.png", tmp_path)) > 50_000
