"""Sums of replicas on several devices: in the host's memory, in buckets that do not wait for the
whole backward pass. The devices are one adapter used several times; each program runs in a separate
process.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from support import python
from tensorflow_wgpu._library import device_type
from tensorflow_wgpu._reduction import in_buckets

pytestmark = pytest.mark.nightly


class Shape(NamedTuple):
    """A shape of `elements` elements; None for an unknown number."""

    elements: int | None

    def num_elements(self) -> int | None:
        """TensorFlow's interface for it."""
        return self.elements


class Type(NamedTuple):
    """A type of `size` bytes."""

    size: int


class Tensor(NamedTuple):
    """The attributes of a tensor that are read."""

    shape: Shape
    dtype: Type


def tensors(*elements: int | None, size: int = 4) -> list[Tensor]:
    return [Tensor(Shape(n), Type(size)) for n in elements]


@pytest.mark.parametrize(
    ("elements", "buckets"),
    [
        ([], []),
        ([10], [[0]]),
        ([10, 20, 30], [[0, 1, 2]]),
        # A bucket is full with the tensor that reaches the limit.
        ([60, 40, 30, 70, 5], [[0, 1], [2, 3], [4]]),
        # A large one is alone, and those around it share.
        ([10, 100, 20], [[1], [0, 2]]),
        ([None, 10, None, 10], [[0], [2], [1, 3]]),
        ([0, 0, 100], [[2], [0, 1]]),
    ],
)
def test_tensors_share_buckets_of_a_size(elements: list[int | None], buckets: list[list[int]]):
    assert in_buckets(tensors(*elements), 400) == buckets


def test_types_do_not_share_buckets():
    mixed = [*tensors(10, size=4), *tensors(10, size=2), *tensors(10, size=4)]
    assert in_buckets(mixed, 400) == [[1], [0, 2]]


def run(program: str, devices: int, **env: str) -> list[Any]:
    """The lines that a program prints, read as JSON."""
    visible = ",".join(["0"] * devices)
    ran = python(program, TF_WGPU_VISIBLE_DEVICES=visible, **env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


OPS = """
import json, tensorflow as tf
ops = {given}
strategy = tf.distribute.MirroredStrategy(cross_device_ops=ops)
print(json.dumps(type(strategy.extended._cross_device_ops).__name__))
"""


@pytest.mark.parametrize(
    ("devices", "env", "given", "name"),
    [
        (2, {}, None, "HostReduction"),
        (2, {"TF_WGPU_DISTRIBUTE": "on"}, None, "HostReduction"),
        (1, {}, None, "CollectiveAllReduce"),
        (2, {"TF_WGPU_DISTRIBUTE": "collective"}, None, "CollectiveAllReduce"),
        (2, {}, "tf.distribute.HierarchicalCopyAllReduce()", "HierarchicalCopyAllReduce"),
    ],
)
def test_several_devices_reduce_on_the_host(devices: int, env: dict, given: str, name: str):
    assert run(OPS.format(given=given), devices, **env) == [name]


SUMS = """
import json, numpy as np, tensorflow as tf
tf.config.set_soft_device_placement(False)
strategy = tf.distribute.MirroredStrategy()
n = strategy.num_replicas_in_sync
rng = np.random.default_rng(3)
kinds = ["float32", "float16", "bfloat16", "float32", "float64", "float32"]
shapes = [(3, 5), (7,), (2, 2), (), (4,), (300, 1100)]
values = [
    [tf.cast(rng.integers(-8, 8, s), k) for k, s in zip(kinds, shapes)] for _ in range(n)
]
options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack={bytes})

def replica(values):
    # On the replica's own device.
    values = [v + tf.zeros([], v.dtype) for v in values]
    context = tf.distribute.get_replica_context()
    slices = tf.IndexedSlices(values[0], tf.constant([0, 2, 2]), tf.constant([4, 5]))
    found = context.all_reduce("sum", [*values, slices], options)
    found[-1] = tf.convert_to_tensor(found[-1])
    return found, context.all_reduce("mean", values, options)

def step(values):
    return strategy.run(replica, args=(values,))

given = strategy.experimental_distribute_values_from_function(
    lambda c: values[c.replica_id_in_sync_group]
)
rows = [[v.numpy().astype("float64") for v in row] for row in values]
sums = [sum(column) for column in zip(*rows)]
sparse = np.zeros([4, 5])
np.add.at(sparse, [0, 2, 2], sums[0])
for call in (step, tf.function(step)):
    summed, means = call(given)
    for got, want in zip(summed, [*sums, sparse]):
        for mine, device in zip(got.values, strategy.extended.worker_devices):
            # TensorFlow returns a function's results on the default device.
            assert call is not step or mine.device == device, (mine.device, device)
            np.testing.assert_array_equal(tf.cast(mine, tf.float64).numpy(), want)
    for got, want in zip(means, sums):
        for mine in got.values:
            np.testing.assert_allclose(tf.cast(mine, tf.float64).numpy(), want / n, rtol=1e-2)
print(n)
"""


@pytest.mark.parametrize("size", [0, 1, 64])
def test_sums_and_means_of_all_types_and_shapes(size: int):
    assert run(SUMS.format(bytes=size), 3 if size else 2) == [3 if size else 2]


COPIES = """
import json, tensorflow as tf, tensorflow_wgpu
strategy = tf.distribute.MirroredStrategy()
shapes = [(512, 600)] + [(40, 40)] * 30
with strategy.scope():
    weights = [tf.Variable(tf.ones(s)) for s in shapes]

@tf.function
def step():
    def replica():
        context = tf.distribute.get_replica_context()
        sums = context.all_reduce("sum", [w * 2.0 for w in weights])
        return tf.add_n([tf.reduce_max(s) for s in sums])
    return strategy.run(replica)

results = []
for _ in range(3):
    before = tensorflow_wgpu.statistics()
    results = [v.numpy() for v in step().values]
    after = tensorflow_wgpu.statistics()
count = {k: [after[d][k] - before[d][k] for d in sorted(after)] for k in after["{type}:0"]}
assert results == [31 * 2.0 * strategy.num_replicas_in_sync] * len(results), results
print(json.dumps(count))
"""


@pytest.mark.parametrize("devices", [2, 4])
def test_a_gradient_is_copied_down_once_and_its_sum_up_once(devices: int):
    def moved(**env: str) -> dict[str, list[int]]:
        return run(COPIES.replace("{type}", device_type()), devices, **env)[0]

    size = 4 * (512 * 600 + 30 * 40 * 40)
    count = moved()
    # And a few numbers that the program reads.
    for what in ("downloaded", "uploaded"):
        assert all(size <= n < size + 64 for n in count[what]), count
    assert all(n <= 2 + 4 for n in count["downloads"]), "a large gradient, and a bucket"
    ring = moved(TF_WGPU_DISTRIBUTE="collective")
    sent = size * 2 * (devices - 1) // devices
    assert all(n >= 0.99 * sent for n in ring["downloaded"]), ring
    assert all(n >= 2 * (devices - 1) for n in ring["downloads"]), ring


OVERLAP = """
import json, threading, numpy as np, tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads(8)
strategy = tf.distribute.MirroredStrategy()
with strategy.scope():
    first, last = (tf.Variable(tf.ones([300, 1024]) * s) for s in (1.0, 2.0))
is_summed, waited = threading.Event(), []

def wait(_):
    waited.append(is_summed.wait({patience}))
    return np.float32(1.0)

@tf.custom_gradient
def late(x):
    # The gradient of what is in front of this is not computed before the last one's sum is there.
    def gradient(upstream):
        with tf.device("CPU:0"):
            given = [tf.reduce_max(upstream)]
            # Without state: TensorFlow runs functions with state one after the other.
            factor = tf.numpy_function(wait, given, tf.float32, stateful=False)
        return upstream * tf.ensure_shape(factor, [])
    return tf.identity(x), gradient

def reduced(strategy, *gradients):
    pairs = [(g, g) for g in gradients]
    return strategy.extended.batch_reduce_to("SUM", pairs)

def seen(total):
    is_summed.set()
    return total

@tf.function
def step():
    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(late(first * 1.0) * last)
        gradients = tape.gradient(loss, [first, last])
        # What `all_reduce` does, whose results then wait for each other: TensorFlow joins them.
        sums = tf.distribute.get_replica_context().merge_call(reduced, args=gradients)
        with tf.device("CPU:0"):
            given = [tf.reduce_max(sums[1])]
            total = tf.numpy_function(seen, given, tf.float32, stateful=False)
        return tf.reduce_max(sums[0]), total
    return strategy.run(replica)

first_sums, last_sums = step()
print(json.dumps([waited, *([float(v) for v in s.values] for s in (first_sums, last_sums))]))
"""


def test_the_last_layers_sum_is_there_before_the_first_layers_gradient():
    sums = [[4.0, 4.0], [2.0, 2.0]]
    assert run(OVERLAP.format(patience=60), 2) == [[[True, True], *sums]]
    # TensorFlow's own reduction is one pack, which waits for all gradients.
    packed = run(OVERLAP.format(patience=1), 2, TF_WGPU_DISTRIBUTE="collective")
    assert packed == [[[False, False], *sums]]
