"""Devices of different drivers in one process: the system's lavapipe beside a newer Mesa or
SwiftShader, which `tools/drivers` unpacks into target/drivers.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import suites
from support import python

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "target/drivers"
SYSTEM = Path("/usr/share/vulkan/icd.d")
#: Names of lavapipe's manifest on Debian, Fedora and Arch.
LAVAPIPE = ("lvp_icd.x86_64.json", "lvp_icd.aarch64.json", "lvp_icd.json")
#: The folders of drivers' libraries.
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")

PROGRAM = """
import json, numpy as np, tensorflow as tf, tensorflow_wgpu
from tensorflow_wgpu._library import devices
tf.config.set_soft_device_placement(False)
names = [d.name[-6:] for d in tf.config.list_logical_devices("WGPU")]
told = {"names": names}
rng = np.random.default_rng(4)
a, b = (rng.normal(size=(301, 257)).astype("float32") for _ in range(2))
for name in names:
    before = tensorflow_wgpu.statistics()
    with tf.device(name):
        result = tf.linalg.matmul(tf.nn.relu(a), b, transpose_b=True).numpy()
    want = np.maximum(a, 0) @ b.T
    assert np.allclose(result, want, rtol=1e-4, atol=1e-4), name
    after = tensorflow_wgpu.statistics()
    worked = [n for n in names if after[n]["dispatches"] > before[n]["dispatches"]]
    assert worked == [name], (worked, name)
told["drivers"] = [devices()[n]["driver"] for n in names]

if len(names) == 2:
    # There and back again, of sizes that are no words, many in flight.
    for there, back in (names, names[::-1]):
        values = [rng.integers(0, 255, n).astype("uint8") for n in (1, 3, 1021, 70001)] * 4
        with tf.device(there):
            sent = [tf.bitwise.invert(v) for v in values]
        with tf.device(back):
            moved = [tf.bitwise.invert(tf.identity(s)) for s in sent]
        with tf.device(there):
            home = [tf.identity(m) for m in moved]
        for value, tensor in zip(values, home):
            assert tensor.device.endswith(there)
            assert np.array_equal(tensor.numpy(), value), (there, back, value.size)
    # Each has memory of its own.
    with tf.device(names[1]):
        info = [tf.config.experimental.get_memory_info(n)["current"] for n in names]
        kept = tf.ones([1 << 20]) + 1.0
        now = [tf.config.experimental.get_memory_info(n)["current"] for n in names]
    assert now[0] == info[0], (info, now)
    assert now[1] >= info[1] + (4 << 20), (info, now)

# Iterators over several devices need kernels of datasets there, which no plug-in can have.
tf.config.set_soft_device_placement(True)
strategy = tf.distribute.MirroredStrategy()
told["replicas"] = strategy.num_replicas_in_sync
x = np.random.default_rng(6).normal(size=(64, 20)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int32")
shapes = [(20, 32), (32,), (32, 2)]
initial = [np.random.default_rng(5).normal(size=s).astype("float32") * 0.3 for s in shapes]
with strategy.scope():
    weights = [tf.Variable(i) for i in initial]
batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(16).repeat(3)
batches = strategy.experimental_distribute_dataset(batches)

def train(images, labels):
    with tf.GradientTape() as tape:
        logits = tf.nn.relu(images @ weights[0] + weights[1]) @ weights[2]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        loss = tf.reduce_sum(losses) / 16
    gradients = tape.gradient(loss, weights)
    context = tf.distribute.get_replica_context()
    context.merge_call(update, args=context.all_reduce("sum", gradients))
    return loss

def update(strategy, *gradients):
    for weight, gradient in zip(weights, gradients):
        strategy.extended.update(weight, lambda w, g: w.assign_sub(0.3 * g), args=(gradient,))

@tf.function
def step(images, labels):
    return strategy.reduce("SUM", strategy.run(train, args=(images, labels)), axis=None)

told["losses"] = [float(step(*batch)) for batch in batches]
for weight in weights:
    copies = [v.numpy() for v in strategy.experimental_local_results(weight)]
    assert all(np.array_equal(c, copies[0]) for c in copies), "replicas have the same weights"
print(json.dumps(told))
"""


def system_lavapipe(folder: Path) -> Path | None:
    """A manifest of the system's lavapipe with its full path: a bare name would first be looked up
    among the other driver's libraries.
    """
    for manifest in (SYSTEM / name for name in LAVAPIPE):
        if manifest.exists():
            named = json.loads(manifest.read_text())["ICD"]["library_path"]
            library = next(
                (p for p in (Path(named), *(Path(d, named) for d in LIBRARIES)) if p.is_file()),
                None,
            )
            return library and suites.fetch.manifest(folder, "system", library.resolve())
    return None


def environment(other: str, folder: Path) -> dict[str, str]:
    """Variables for the system's lavapipe and another driver in one process, or a skip."""
    lavapipe = system_lavapipe(folder)
    needs = "mesa" if other == "mesa25" else "chromium"
    if lavapipe is None:
        pytest.skip(f"lavapipe is not installed in {SYSTEM}")
    if not (FOLDER / needs).exists():
        pytest.skip(f"{FOLDER / needs} is not there: `make drivers-suites-sample` fetches it")
    variables = suites.environment(FOLDER, other)
    both = os.pathsep.join([str(lavapipe), variables["VK_DRIVER_FILES"]])
    return {**variables, "VK_DRIVER_FILES": both, "VK_ICD_FILENAMES": both}


def run(**env: str) -> dict[str, Any]:
    ran = python(PROGRAM, **env)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize("other", suites.DRIVERS)
def test_two_drivers_are_two_devices_of_one_process(other: str, tmp_path: Path):
    env = environment(other, tmp_path)
    both = run(**env, TF_WGPU_VISIBLE_DEVICES="0,1")
    assert both["names"] == ["WGPU:0", "WGPU:1"]
    assert both["replicas"] == 2
    assert len(set(both["drivers"])) == 2, both["drivers"]
    # The same numbers as on each driver alone, and each driver gives the same as the other.
    alone = [run(**env, TF_WGPU_VISIBLE_DEVICES=index) for index in "01"]
    assert [one["drivers"][0] for one in alone] == both["drivers"]
    for one in alone:
        assert one["replicas"] == 1
        np.testing.assert_allclose(both["losses"], one["losses"], rtol=1e-4)
    assert both["losses"][-1] < both["losses"][0]
