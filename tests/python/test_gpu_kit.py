"""The tools of the GPU kit: `tensorflow-slices`, the problems that `check` finds, and the
comparison of two results by `compare.py`. The kit itself is run by `make gpu-kit-check`.
"""

import json
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools/gpu-kit"


def result(**changed: object) -> dict:
    """A kit's result in its smallest form."""
    row = {"family": "matmul", "name": "MatMul", "ms": 2.0, "ratio": 4.0}
    runs = ("default", "matrix units off", "matrix units on", "tuning", "tuned")
    return {
        "kind": "gpu-kit",
        "schema": 1,
        "fine": True,
        "adapter": {"name": "a card"},
        "host": {"cpu": "a processor"},
        "date": "2026-11-24",
        "kit": {"commit": "abc"},
        "steps": [{"name": "test norm", "end": "0"}],
        "suites": [{"name": "norm", "passed": 9, "failed": [], "unfinished": []}],
        "rows": [{**row, "run": run} for run in runs],
        **changed,
    }


def compare(tmp_path: Path, before: dict, after: dict, *options: str) -> str:
    """The output of compare.py for two results."""
    paths = []
    for name, written in (("before", before), ("after", after)):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(written))
    ran = subprocess.run(
        [sys.executable, ROOT / "benches/compare.py", *paths, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout + ran.stderr


def test_two_kits_are_compared_by_run_and_by_their_tests(tmp_path: Path):
    faster = [{**row, "ms": 1.0} for row in result()["rows"]]
    suites = [
        {
            "name": "norm",
            "passed": 7,
            "failed": [{"name": "norm::rows", "message": "1 is not 2"}],
            "unfinished": [{"name": "norm::bias", "end": "signal 11"}],
        }
    ]
    text = compare(tmp_path, result(), result(rows=faster, suites=suites))
    assert "| matrix units on matmul MatMul | 2 | 1 | 2.00 |" in text
    assert "Tests that did not pass: 0 of the first, 2 of the second." in text
    assert "- norm: norm::rows: not among the failures, then failed" in text
    assert "- norm: norm::bias: not among the failures, then did not end" in text


def test_two_runs_of_kits_are_compared(tmp_path: Path):
    rows = [{**row, "ms": float(2 + n)} for n, row in enumerate(result()["rows"])]
    kit = result(rows=rows)
    text = compare(tmp_path, kit, kit, "--runs", "matrix units off", "matrix units on")
    assert "| matmul MatMul | 3 | 4 | 0.75 |" in text
    text = compare(tmp_path, kit, kit, "--runs", "matrix units off", "nothing")
    assert "the kit has no run 'nothing'; there are default, matrix units off" in text


def test_what_is_wrong_with_a_result_is_found():
    problems = runpy.run_path(str(TOOLS / "check"))["problems"]
    assert problems(result()) == []
    steps = [{"name": "test norm", "end": "signal 11"}]
    assert problems(result(fine=False, steps=steps)) == ["not every step ended well: test norm"]
    assert problems(result(rows=result()["rows"][:4])) == ["it has no rows of tuned"]
    empty = [{"name": "norm", "passed": 0, "failed": [], "unfinished": []}]
    assert problems(result(suites=empty)) == ["norm has no test"]


def wheel(folder: Path, name: str, content: bytes, requires: str = "") -> Path:
    """A package of one module."""
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{name}.py", content)
        needs = f"Requires-Dist: {requires}\n" if requires else ""
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}"
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def sliced(tmp_path: Path) -> Path:
    """A folder of slices of 4 KiB, of two packages, of which one needs the other, and a third."""
    wheels, out = tmp_path / "wheels", tmp_path / "out"
    wheels.mkdir()
    wheel(wheels, "sliced_needed", b"VALUE = 7\n" + b"#" * 9000)
    wheel(wheels, "sliced", b"from sliced_needed import VALUE\n", "sliced_needed")
    (tmp_path / "own").mkdir()
    own = wheel(tmp_path / "own", "sliced_own", b"VALUE = 8\n")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [sys.executable, TOOLS / "tensorflow-slices", "--python", python]
    command += ["--tensorflow", "sliced==1.0", "--wheels", wheels, "--wheel", own]
    subprocess.run([*command, "--size", "4096", "--output", out], check=True)
    return out


def join(folder: Path) -> subprocess.CompletedProcess:
    """Runs join.sh with this Python."""
    return subprocess.run(
        ["sh", folder / "join.sh"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )


def test_slices_are_joined_and_installed(sliced: Path):
    slices = sorted(sliced.glob("slice.*"))
    assert len(slices) > 2
    assert all(part.stat().st_size <= 4096 for part in slices)
    ran = join(sliced)
    assert ran.returncode == 0, ran.stderr
    program = "import sliced, sliced_own; print(sliced.VALUE, sliced_own.VALUE)"
    out = subprocess.run([sliced / "tensorflow/bin/python", "-c", program], capture_output=True)
    assert out.stdout.split() == [b"7", b"8"]


def test_a_damaged_slice_and_another_python_are_refused(sliced: Path):
    damaged = bytearray((sliced / "slice.01").read_bytes())
    damaged[100] ^= 1
    (sliced / "slice.01").write_bytes(damaged)
    ran = join(sliced)
    assert ran.returncode != 0
    assert "slice.01" in ran.stdout + ran.stderr
    assert not (sliced / "tensorflow").exists()
    text = (sliced / "join.sh").read_text().replace("!= 3.", "!= 2.")
    (sliced / "join.sh").write_text(text)
    assert "the wheels are for" in join(sliced).stderr
