"""`tensorflow_wgpu.explain`: what the optimizer fused, and why it left other nodes alone."""

import pytest
import tensorflow as tf
import tensorflow_wgpu

X = tf.constant([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]])


@pytest.fixture(scope="module")
def explanation():
    @tf.function
    def step(x):
        y = tf.nn.relu(tf.exp(-x) * 2.0 + 1.0)
        long = tf.math.igamma(x, x + 1.0)
        return y, tf.cumsum(long)

    step(X)
    return tensorflow_wgpu.explain(step, X)


def test_fused_nodes_have_the_nodes_that_they_replace(explanation):
    ops = {part.split()[0] for decision in explanation.fused for part in decision.replaces}
    assert ops >= {"Neg", "Exp", "Relu"}, explanation
    assert all(decision.op.startswith("_Wgpu") for decision in explanation.fused)


def test_other_nodes_have_a_reason(explanation):
    reasons = {decision.op: decision.reason for decision in explanation.left}
    assert "loops too long" in reasons["Igamma"], explanation
    assert "no fused op" in reasons["Cumsum"], explanation


def test_a_product_and_a_reduction_tell_why_the_nodes_behind_them_stay():
    @tf.function
    def step(x, y):
        product = tf.matmul(x, x, transpose_b=True)
        with tf.device("CPU:0"):
            host = tf.nn.relu(product)
        return host, tf.reduce_sum(x, 1) * y

    found = tensorflow_wgpu.explain(step, X, tf.ones((3, 2)))
    reasons = {decision.op: decision.reason for decision in found.left}
    assert "different devices" in reasons["MatMul"], found
    assert "different shapes" in reasons["Sum"], found


def test_it_is_a_text_a_table_and_a_picture(explanation, tmp_path):
    assert "replaces" in repr(explanation)
    assert "<table>" in explanation._repr_html_()
    explanation.save(tmp_path / "graph.svg")
    assert (tmp_path / "graph.svg").read_text(encoding="utf-8").startswith("<svg")


def test_nodes_are_in_a_region_or_have_a_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_WGPU_CAPTURE", "on")

    @tf.function
    def step(x):
        y = tf.matmul(x, x, transpose_b=True)
        for _ in range(3):
            y = tf.matmul(y, y) / 64.0
        tf.print("sum", tf.reduce_sum(y), output_stream=f"file://{tmp_path / 'printed'}")
        found = tf.where(y > 1.0)
        return tf.linalg.matmul(y, y, name="result"), found

    found = tensorflow_wgpu.explain(step, X)
    held = [placement for placement in found.placements if placement.region]
    assert any("MatMul" in placement.op for placement in held), found
    assert not any(placement.reason for placement in held)
    # What lies in a region is decided as without regions.
    assert {placement.op for placement in held} & {decision.op for decision in found}, found
    reasons = {placement.op: placement.reason for placement in found.outside}
    assert "waits for the device" in reasons["Where"], found
    assert "runs on CPU" in reasons["StringFormat"], found
    assert f"{len(found.outside)} are outside" in repr(found)
    assert "waits for the device" in found._repr_html_()
    assert "region 0" in found.picture
    assert "no region: " in found.picture
    monkeypatch.setenv("TF_WGPU_CAPTURE", "off")
    assert not tensorflow_wgpu.explain(step, X).placements


def test_variables_keep_their_values_and_models_are_programs():
    total = tf.Variable(tf.zeros((2, 3)))

    @tf.function
    def add(x):
        total.assign_add(tf.exp(x) * 2.0)

    assert tensorflow_wgpu.explain(add, X).fused
    assert not total.numpy().any()
    model = tf.keras.Sequential([tf.keras.layers.Dense(4, activation="gelu")])
    assert tensorflow_wgpu.explain(model, X).fused
