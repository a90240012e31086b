"""`TF_WGPU_DUMP`: shaders, graphs and timings in a folder."""

import csv
from pathlib import Path

import pytest
from support import python

#: How the entry point begins in each backend's language.
ENTRIES = {".spvasm": "OpEntryPoint GLCompute", ".metal": "kernel void", ".hlsl": "[numthreads("}

PROGRAM = """
    import tensorflow as tf

    @tf.function
    def f(x):
        return tf.nn.relu(tf.exp(-x) * 2.0 + 1.0)

    with tf.device("WGPU:0"):
        print(f(tf.ones((2, 3))).numpy()[0, 0])
"""


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """The files that a process wrote."""
    folder = tmp_path_factory.mktemp("dump")
    done = python(PROGRAM, TF_WGPU_DUMP=folder, TF_WGPU_CACHE="off")
    assert done.returncode == 0, done.stderr
    assert "TF_WGPU_DUMP" not in done.stderr
    (process,) = folder.iterdir()
    assert process.name.isdigit()
    return process


def test_each_graph_has_its_text_before_after_and_behind_each_pass(dump):
    before = (dump / "graphs" / "0000_before.txt").read_text(encoding="utf-8")
    after = (dump / "graphs" / "0000_after.txt").read_text(encoding="utf-8")
    # TensorFlow's lists of nodes to keep and its shapes have come through.
    assert "preserve " in before
    assert "= Exp(" in before
    assert "-> float32[2, 3]" in before
    assert "= Exp(" not in after
    assert "_WgpuFusedElementwise(" in after
    for when in ("before", "after"):
        picture = (dump / "graphs" / f"0000_{when}.svg").read_text(encoding="utf-8")
        assert picture.startswith("<svg")
    rows = [row for row in table(dump / "passes.tsv") if row["graph"] == "0000"]
    steps = {f"0000_{row['step']}_{row['pass']}.txt" for row in rows if row["step"]}
    assert steps == {path.name for path in (dump / "graphs").glob("0000_[0-9]*")}
    assert any(name.endswith("_elementwise.txt") for name in steps)
    last = (dump / "graphs" / max(steps)).read_text(encoding="utf-8")
    assert last == after
    assert all(float(row["ms"]) >= 0 and int(row["nodes"]) > 0 for row in rows)
    assert all((int(row["edits"]) > 0) == bool(row["step"]) for row in rows)


def test_each_node_has_its_origin_or_a_reason(dump):
    rows = [row for row in table(dump / "fusions.tsv") if row["graph"] == "0000"]
    (fused,) = [row for row in rows if row["op"] == "_WgpuFusedElementwise"]
    assert {part.split()[0] for part in fused["replaces"].split("; ")} >= {"Neg", "Exp", "Relu"}
    assert not fused["reason"]
    assert all(row["reason"] for row in rows if not row["op"].startswith("_Wgpu"))


def test_each_shader_has_its_text_and_the_driver_s(dump):
    rows = table(dump / "shaders.tsv")
    assert rows
    for row in rows:
        assert row["outcome"] == "compiled"
        assert float(row["ms"]) > 0
        (wgsl,) = (dump / "shaders").glob(f"{row['number']}_*.wgsl")
        assert "@compute" in wgsl.read_text(encoding="utf-8")
        (driver,) = (f for f in (dump / "shaders").glob(f"{wgsl.stem}.*") if f.suffix in ENTRIES)
        assert ENTRIES[driver.suffix] in driver.read_text(encoding="utf-8")
    (fused,) = [row for row in rows if row["key"].startswith("elementwise, ")]
    (text,) = (dump / "shaders").glob(f"{fused['number']}_*.wgsl")
    assert "exp(" in text.read_text(encoding="utf-8")


def test_the_device_is_described(dump):
    text = (dump / "device_0000.txt").read_text(encoding="utf-8")
    assert "driver_info" in text
    assert "loop_limit" in text


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path):
    file = tmp_path / "file"
    file.touch()
    done = python(PROGRAM, TF_WGPU_DUMP=file)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("TF_WGPU_DUMP") == 1, done.stderr
