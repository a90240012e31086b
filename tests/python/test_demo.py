"""The demo's model trains on WGPU and nowhere else."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support import float_ops, python

import demo

DEMO = Path(__file__).parents[2] / "demo"


def forward(ops, op):
    """The number of nodes of an op, alone or fused with later ones."""
    return ops[op] + ops[f"_WgpuFused{op}"]


def test_every_float_op_of_a_training_step_runs_on_wgpu():
    assert not tf.config.get_soft_device_placement()
    model = demo.build_model()
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    train_x, _, train_y, _ = demo.digits()
    ops = float_ops(lambda: model.train_on_batch(train_x[: demo.BATCH], train_y[: demo.BATCH]))
    assert list(ops) == ["WGPU:0"], ops
    assert forward(ops["WGPU:0"], "Conv2D") == 2
    assert ops["WGPU:0"]["Conv2DBackpropFilter"] == 2
    # Products of the weights' gradients sum those of the biases.
    sums = ops["WGPU:0"]["_WgpuFusedMatMulWithSums"]
    assert forward(ops["WGPU:0"], "MatMul") + sums >= 6


def test_the_demo_lists_the_ops_of_a_step():
    model = demo.build_model()
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    # The optimizer makes regions once it has seen a graph.
    for _ in range(3):
        assert forward(demo.ops_of_a_step(model)["WGPU:0"], "Conv2D") == 2


@pytest.mark.nightly
def test_training_without_devices_named_reaches_the_accuracy(tmp_path):
    ran = python(
        f"""
        import sys
        sys.path.insert(0, {str(DEMO)!r})
        import demo
        sys.argv = ["demo.py", "--output", {str(tmp_path)!r}]
        sys.exit(demo.main())
        """,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "step" in ran.stdout
    assert "\nOne training step ran\n  on WGPU:0, " in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("Success: ")
    picture = tmp_path / "learning-curves.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000


def test_the_demo_needs_a_device():
    ran = python(
        f"""
        import sys
        sys.path.insert(0, {str(DEMO)!r})
        import demo
        sys.argv = ["demo.py"]
        sys.exit(demo.main())
        """,
        TF_WGPU_VISIBLE_DEVICES="-1",
    )
    assert ran.returncode == 1
    assert "sees no WGPU device" in ran.stderr


@pytest.mark.parametrize("accuracy", [0.5, 0.95])
def test_the_demo_fails_below_the_required_accuracy(accuracy, monkeypatch, tmp_path):
    curves = {"accuracy": [accuracy], "val_accuracy": [accuracy]}
    result = {"history": curves, "accuracy": accuracy, "step_ms": 1.0}
    monkeypatch.setattr(demo, "train", lambda epochs: (None, result))
    monkeypatch.setattr(demo, "train_on_cpu", lambda epochs: result)
    monkeypatch.setattr(demo, "ops_of_a_step", lambda model: {"WGPU:0": Counter(Conv2D=2)})
    monkeypatch.setattr(sys, "argv", ["demo.py", "--output", str(tmp_path)])
    assert demo.main() == 1
    assert np.isclose(demo.REQUIRED_ACCURACY, 0.95)
