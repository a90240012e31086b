"""`python -m tensorflow_wgpu.bench`, `benches/compare.py`, and `benches/peers/`, run and models."""

import importlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tensorflow_wgpu.bench import catalogue, verdict
from tensorflow_wgpu.bench.__main__ import conclusion

pytestmark = pytest.mark.nightly

BENCHES = Path(__file__).parents[2] / "benches"
COMPARE, PEERS = BENCHES / "compare.py", BENCHES / "peers" / "run.py"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """A process of this Python."""
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The figures of a tiny model."""
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    ran = run(
        "-m", "tensorflow_wgpu.bench", "--quick", "--models", "transformer", "--json", str(path)
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("| transformer |") == 4, ran.stdout
    return {**json.loads(path.read_text()), "stdout": ran.stdout}


def test_models_are_timed_on_both_devices(measured: dict):
    assert (measured["kind"], measured["schema"]) == ("models", 1)
    assert measured["adapter"]["name"]
    assert {"tensorflow", "keras", "tensorflow-wgpu"} <= set(measured["versions"])
    places = [(row["phase"], row["device"]) for row in measured["rows"]]
    assert places == [
        (p, f"/device:{d}:0") for p in ("inference", "training") for d in ("WGPU", "CPU")
    ]
    for row in measured["rows"]:
        assert row["finite"]
        assert row["difference"] < 1e-3, "the same weights give the same results"
        assert 0 < row["best_s"] <= row["step_s"] < row["first_s"]
        assert 0 < row["host_s"] <= row["step_s"]
        assert row["cpu_s"] > 0
        # Two sequences of eight positions.
        assert math.isclose(row["units_per_s"] * row["step_s"], 16)


def test_what_the_device_did_is_counted(measured: dict):
    inference, on_cpu, training, _ = measured["rows"]
    assert 0 < inference["dispatches"] < training["dispatches"]
    assert 0 < inference["gpu_s"] < inference["first_s"]
    for row in (inference, training):
        assert 0 < row["barriers_needed"] <= row["barriers"] < row["dispatches"]
    assert inference["bytes"] > 16 * 16 * 4
    assert (inference["downloads"], inference["downloaded"]) == (1, 2 * 10 * 4)
    assert inference["cpu_float_ops"] == {}
    assert inference["nodes"] > 10
    assert on_cpu["dispatches"] is None
    assert on_cpu["cpu_share"] is None


def test_the_figures_end_with_verdicts(measured: dict):
    """The last lines are for the user, those before them for an issue."""
    *_, bars, verdicts = measured["stdout"].strip().split("\n\n")
    assert bars.startswith("Transformer encoder, inference, tokens/s\n  WGPU:0 ")
    assert len(bars.splitlines()) == 6
    # `--quick` measures too little for the table of adapters.
    table, bars_again, row, verdicts_again = conclusion(measured, adapter_row=True)
    assert [table, bars_again, verdicts_again] == conclusion(measured, adapter_row=False)
    assert (bars_again, verdicts_again) == (bars, verdicts)
    introduction, row = row.split("\n\n")
    assert introduction == "For the table of adapters, in an issue:"
    assert row.startswith(f"| {measured['adapter']['name']} (Vulkan) | ")
    assert re.search(
        r"Transformer encoder, inference [\d.e+-]+ ×; Transformer encoder, training [\d.]", row
    )
    said = [
        rf"Transformer encoder, {phase}: WGPU:0 (is|takes) .*(fast|long) as the CPU"
        for phase in ("inference", "training")
    ]
    lines = verdicts.splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(said, lines)), lines


def row(device: str, speed: float, **changes: object) -> dict:
    """A row of a run."""
    return {
        "model": "resnet50",
        "phase": "training",
        "device": f"/device:{device}",
        "unit": "images",
        "units_per_s": speed,
        "finite": True,
        "difference": 0.0,
        **changes,
    }


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ((31.0, 10.0), "WGPU:0 is 3.1 times as fast as the CPU"),
        ((310.0, 10.0), "WGPU:0 is 31 times as fast as the CPU"),
        ((10.0, 33.0), "WGPU:0 takes 3.3 times as long as the CPU"),
        ((10.2, 10.0), "WGPU:0 is as fast as the CPU"),
    ],
)
def test_a_verdict_is_a_sentence(speeds: tuple[float, float], said: str):
    rows = [row("WGPU:0", speeds[0]), row("CPU:0", speeds[1])]
    assert verdict.verdicts(rows) == [f"ResNet50, training: {said}"]


def test_a_verdict_tells_of_failures_and_of_other_results():
    failed = row("WGPU:0", 1.0, error="OutOfMemory: none left\nmore")
    assert verdict.verdicts([failed, row("CPU:0", 1.0)]) == [
        "ResNet50, training: WGPU:0 failed: OutOfMemory: none left"
    ]
    fast = row("WGPU:0", 9.0)
    assert verdict.verdicts([fast, row("CPU:0", 1.0, error="killed")]) == [
        "ResNet50, training: the CPU failed: killed"
    ]
    assert verdict.verdicts([fast]) == []
    (line,) = verdict.verdicts([{**fast, "difference": 0.25}, row("CPU:0", 1.0)])
    assert line.endswith("9.0 times as fast as the CPU, but the results differ by 25.0 %")
    (line,) = verdict.verdicts([{**fast, "finite": False}, row("CPU:0", 1.0)])
    assert line.endswith("but its results are not finite")
    both = [row("WGPU:0", 8.0), row("GPU:0", 4.0), row("CPU:0", 2.0)]
    assert [line.partition(": ")[2] for line in verdict.verdicts(both)] == [
        "WGPU:0 is 4.0 times as fast as the CPU",
        "GPU:0 is 2.0 times as fast as the CPU",
    ]


def test_bars_are_as_long_as_devices_are_fast():
    rows = [row("WGPU:0", 40.0), row("CPU:0", 10.0), row("GPU:0", 1.0, error="none")]
    for encoding, mark in (("utf-8", "█"), ("ascii", "#"), (None, "#")):
        lines = verdict.bars(rows, encoding).splitlines()
        assert lines[0] == "ResNet50, training, images/s"
        assert [line.count(mark) for line in lines[1:]] == [40, 10]


def test_a_wrong_name_is_known_before_tensorflow_is_imported(tmp_path: Path):
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('imported')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    for option, value, said in (
        ("--models", "alexnet", "unknown model 'alexnet'; there are resnet50"),
        ("--models", "transformer,ResNet-50", "unknown model 'ResNet-50'; is it resnet50?"),
        ("--phases", "train", "unknown phase 'train'; is it training?"),
    ):
        ran = run("-m", "tensorflow_wgpu.bench", option, value, PYTHONPATH=path)
        assert (ran.returncode, said in ran.stderr) == (2, True), ran.stderr
    ran = run("-m", "tensorflow_wgpu.bench", "--list", PYTHONPATH=path)
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (0, "resnet50: ResNet50, in images")


def test_the_catalogue_names_what_can_be_made():
    from tensorflow_wgpu.bench import workloads

    assert list(workloads.MODELS) == list(workloads.MAKERS) == list(catalogue.MODELS)
    assert list(workloads.PHASES) == list(catalogue.PHASES)


def test_a_picture_without_matplotlib_says_what_to_install(tmp_path: Path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = run("-m", "tensorflow_wgpu.bench", "--plot", "x.png", PYTHONPATH=path)
    assert (ran.returncode, "pip install matplotlib" in ran.stderr) == (2, True), ran.stderr


def kernels(path: Path, **milliseconds: float) -> str:
    """A file in the format of the kernels' benchmark."""
    rows = [
        {"family": "scalar", "name": name, "ms": ms, "dispatches": 1}
        for name, ms in milliseconds.items()
    ]
    rows.append({"family": "scalar", "name": "Failed", "error": "no memory"})
    head = {
        "kind": "kernels",
        "schema": 1,
        "adapter": {"name": path.stem},
        "host": {"cpu": "x"},
        "date": "today",
    }
    path.write_text(json.dumps({**head, "rows": rows}))
    return str(path)


def test_two_runs_are_compared_row_by_row(tmp_path: Path):
    before = kernels(tmp_path / "old.json", Add=8.0, Mul=1.0, Gone=1.0)
    after = kernels(tmp_path / "new.json", Mul=2.0, Add=2.0, New=1.0)
    ran = run(str(COMPARE), before, after)
    assert ran.returncode == 0, ran.stderr
    rows = [line for line in ran.stdout.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        "| scalar Add | 8 | 2 | 4.00 |",
        "| scalar Mul | 1 | 2 | 0.50 |",
        "| Geometric mean of 2 | | | 1.41 |",
    ]
    assert (
        "| scalar Add | 1 | 1 | 1.00 |"
        in run(str(COMPARE), before, after, "--by", "dispatches").stdout
    )


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path, measured: dict):
    one, other = kernels(tmp_path / "one.json", Add=1.0), kernels(tmp_path / "other.json", Mul=1.0)
    models = tmp_path / "models.json"
    models.write_text(json.dumps(measured))
    (tmp_path / "else.json").write_text("[]")
    for arguments, message in [
        ((one, other), "no row in common"),
        ((one, str(models)), "two kinds, kernels and models"),
        ((one, str(tmp_path / "else.json")), "else.json was written by none"),
        ((one, str(tmp_path / "none.json")), "none.json"),
        ((one, one, "--by", "colour"), "colour is no figure"),
    ]:
        ran = run(str(COMPARE), *arguments)
        assert (ran.returncode, message in ran.stderr) == (2, True), ran.stderr
    assert run(str(COMPARE), str(models), str(models)).returncode == 0


def test_pictures_of_ratios(tmp_path: Path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "picture.png"
    before, after = (
        kernels(tmp_path / "old.json", Add=8.0, Mul=1.0),
        kernels(tmp_path / "new.json", Add=2.0, Mul=2.0),
    )
    ran = run(str(COMPARE), before, after, "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


def peers(tmp_path: Path, script: str, *arguments: str) -> tuple[subprocess.CompletedProcess, dict]:
    """The tables and the figures of one peer, a program that runs `script`."""
    peer, figures = tmp_path / "peer", tmp_path / "peers.json"
    peer.write_text(f"#!/bin/sh\n{script}\n")
    peer.chmod(0o755)
    ran = run(str(PEERS), "--only", "burn", "--burn", str(peer), "--json", str(figures), *arguments)
    return ran, json.loads(figures.read_text())


ANSWERS = """\
echo '{"about": "burn 1'${VK_DRIVER_FILES:+ $VK_DRIVER_FILES}'"}'
while read row; do case $row in
    add) echo '{"row": "add", "seconds": 0.5, "cpu": 1.0}';;
    small) echo no JSON; echo '{"row": "small", "seconds": 0.002, "cpu": 0.001}';;
    conv3) echo '{"row": "conv3", "error": "no convolution"}';;
    *) echo '{"row": "'$row'", "absent": true}';;
esac; done"""


def test_peers_are_tables_and_their_refusals(tmp_path: Path):
    ran, figures = peers(tmp_path, ANSWERS, "--rounds", "3")
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[0] == "| Work | Unit | burn |"
    # 16 M sums move 192 MiB; a thousand of them in 2 ms take 2 µs each.
    assert [line for line in lines if line.startswith("| Add 16 M |")] == [
        "| Add 16 M | GB/s | 0.403 |",
        "| Add 16 M | GB/s | 0.201 |",
    ]
    assert "| 1000 small adds | µs each | 2 |" in lines
    assert "MatMul" not in ran.stdout
    assert ran.stdout.strip().splitlines()[-2:] == [
        "- burn: burn 1",
        "- burn, conv3: no convolution",
    ]
    assert figures["runs"]["system"]["burn"]["samples"] == {
        "add": [[0.5, 1.0]] * 3,
        "small": [[0.002, 0.001]] * 3,
    }


def test_a_driver_beside_the_systems(tmp_path: Path):
    manifest = tmp_path / "mesa" / "usr/share/vulkan/icd.d/lvp_icd.x86_64.json"
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    (tmp_path / "mesa/usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    ran, figures = peers(tmp_path, ANSWERS, "--driver", f"new={tmp_path / 'mesa'}", "--quick")
    assert ran.returncode == 0, ran.stderr
    assert figures["runs"]["new"]["burn"]["about"] == f"burn 1 {manifest}"
    absent = run(str(PEERS), "--only", "burn", "--driver", f"new={tmp_path}")
    assert (absent.returncode, "has no usr/share/vulkan" in absent.stderr) == (2, True), (
        absent.stderr
    )


@pytest.mark.parametrize("kind", ["Cpu", "DiscreteGpu"])
def test_large_rows_are_for_hardware(tmp_path: Path, kind: str):
    kernels = tmp_path / "kernels"
    about = {
        "adapter": {"name": "one", "type": kind, "driver_info": "1"},
        "versions": {"tensorflow-wgpu": "0"},
        "optimized": True,
        "peaks": {"copy_gb_s": 4},
    }
    kernels.write_text(f"""#!/bin/sh
echo '{json.dumps(about)}'
while read row; do echo '{{"ms": 1, "cpu_s": 0}}'; done""")
    kernels.chmod(0o755)
    ran = run(str(PEERS), "--only", "ours", "--kernels", str(kernels), "--quick")
    assert ran.returncode == 0, ran.stderr
    large = [line for line in ran.stdout.splitlines() if "4096³" in line]
    figures = [
        "| MatMul 4096³ | GFLOP/s | 1.37e+05 |",
        "| MatMul float16 4096³ | GFLOP/s | 1.37e+05 |",
    ]
    assert large[:2] == ([] if kind == "Cpu" else figures)


def test_a_peer_that_cannot_run_is_named(tmp_path: Path):
    ran, _ = peers(tmp_path, "echo no GPU >&2; exit 3")
    assert (ran.returncode, "- burn: ended with 3: no GPU" in ran.stdout) == (1, True), ran.stdout
    slow, _ = peers(tmp_path, "sleep 10", "--patience", "0.2")
    assert "- burn: no answer in 0.2 s" in slow.stdout
    absent = run(str(PEERS), "--only", "burn", "--burn", str(tmp_path / "absent"))
    assert absent.returncode == 1
    assert "absent is not there: cargo build --release in benches/peers/burn" in absent.stdout


@pytest.fixture
def of_peers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a module of the peers, which import each other by plain names."""
    monkeypatch.syspath_prepend(str(PEERS.parent))
    return importlib.import_module


def asked(seconds: float, difference: float, **told: object) -> dict:
    """A peer that was asked for ResNet50 twice."""
    facts = {"resnet50": {"difference": difference, **told}}
    return {"samples": {"resnet50": [[seconds, 2 * seconds]] * 2}, "facts": facts}


def test_networks_are_a_table_and_wrong_results_have_no_time(of_peers: Callable):
    report = of_peers("networks_report")
    peers = {
        report.OURS: asked(0.1, 1e-6, dispatches=110),
        report.ORT: asked(0.4, 2e-6),
        report.CPU: asked(0.05, 0.0),
    }
    lines = report.figures(peers, True).splitlines()
    assert lines[2:] == [
        "| ResNet50 | 1×96×96 | 100 | 110 | 400 | 4.00 | 4.00 | 50 | 0.50 | 1.0e-06, 2.0e-06 |",
        "| Geometric mean | | | | | 4.00 (1) | 4.00 (1) | | 0.50 (1) | |",
    ]
    peers[report.ORT] = asked(0.4, 2e-6, on_cpu={"GRU": 1, "Cast": 2})
    assert "| 400, CPU | – | – | 50 | 0.50 |" in report.figures(peers, True)
    assert report.on_cpu(peers) == "- ONNX Runtime WebGPU, resnet50: on the CPU Cast 2, GRU 1"
    peers[report.ORT] = asked(0.4, 0.1)
    lines = report.figures(peers, False).splitlines()
    assert lines[2:] == [
        "| ResNet50 | 8×224×224 | 100 | 110 | **wrong** | – | – | 50 | 0.50 | 1.0e-06, 1.0e-01 |",
        "| Geometric mean | | | | | – | – | | 0.50 (1) | |",
    ]


def test_results_differ_by_parts_of_the_largest_number(of_peers: Callable):
    difference = of_peers("rows").difference
    right = [np.array([1.0, -4.0]), np.zeros(2)]
    assert difference([np.array([1.0, -3.0]), np.zeros(2)], right) == 0.25
    for wrong in (right[:1], [right[0], np.zeros(3)], [right[0], np.array([0, np.nan])]):
        assert difference(wrong, right) == math.inf


def test_first_steps_count_shaders_of_the_same_text(of_peers: Callable):
    report = of_peers("networks_report")
    log = """\
tensorflow-wgpu: trace: compiling shader Add:
// A header.
const UNREAD: u32 = 1u;
const READ: u32 = 2u;
fn main() { x = READ; }
tensorflow-wgpu: trace: compiling shader AddV2:
const UNREAD: u32 = 7u;
const READ: u32 = 2u;
fn main() {
    x = READ; // The same.
}
tensorflow-wgpu: trace: compiling shader Mul:
const READ: u32 = 3u;
fn main() { x = READ; }
tensorflow-wgpu: warn: something else
"""
    assert report.duplicates(log) == {"Add": 1}
    cold = {"tracing": 1, "first": 3, "second": 0.5, "pipelines": 3, "duplicates": {"Add": 1}}
    lines = report.first_steps({"lstm": [cold, {**cold, "first": 2}], "gru": [cold]}).splitlines()
    assert lines[2:] == ["| LSTM | 1.00 | 3.00 | 2.00 | 0.50 | 0.50 | 3 | 1 |"]


def test_every_network_has_a_row_of_its_own(of_peers: Callable):
    networks = of_peers("networks").NETWORKS
    assert len({made.key for made in networks}) == len(networks) == 10
    assert all(made.full.title != made.small.title for made in networks)
