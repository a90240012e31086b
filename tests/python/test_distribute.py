"""TensorFlow's strategies on WGPU devices, in separate processes: scripts as in TensorFlow's
tutorials, in tests/python/distribute. Two devices are one adapter used twice.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import ONE, TWO, cluster, start, task, told
from support import python
from tensorflow_wgpu._library import device_type

pytestmark = pytest.mark.nightly


def both(script: str, *arguments: str) -> list[dict[str, Any]]:
    """The output of a script with one device and with two."""
    return [told(start(script, *arguments, **env)) for env in (ONE, TWO)]


def devices(count: int, task: str = "/job:localhost/replica:0/task:0") -> list[str]:
    return [f"{task}/device:{device_type()}:{i}" for i in range(count)]


def test_keras_fits_evaluates_predicts_and_saves():
    one, two = both("mirrored.py", "2")
    assert (one["replicas"], two["replicas"]) == (1, 2)
    assert two["devices"] == devices(2)
    assert two["checkpoints"] == [f"ckpt_{i}.weights.h5" for i in (1, 2, 3)]
    for what in ("loss", "evaluation", "prediction", "alone", "replicated"):
        np.testing.assert_allclose(two[what], one[what], rtol=1e-4, atol=1e-5, err_msg=what)
    assert two["alone"] == pytest.approx(two["evaluation"])


def test_each_share_of_a_batch_waits_on_its_device():
    """The last batch has no part for the second device."""
    _, two = both("shares.py")
    assert two["devices"] == [devices(2)] * 4
    assert two["batches"] == [
        *([[i, i + 1], [i + 2, i + 3]] for i in (0, 4, 8)),
        [[12], []],
    ]
    assert (two["sums"], two["total"]) == ([6, 22, 38], 78)


@pytest.mark.parametrize("with_halves", [False, True])
def test_a_loop_of_ones_own_is_as_on_one_device(with_halves: bool):
    words = ("synchronized", "mixed") if with_halves else ("synchronized",)
    one, two = both("loop.py", "x", *words)
    assert (one["replicas"], two["replicas"]) == (1, 2)
    np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-3 if with_halves else 1e-4)
    assert two["accuracy"] == pytest.approx(one["accuracy"], abs=0.02)


def test_each_replica_has_statistics_of_its_own_unless_synchronized():
    one, two = both("loop.py", "x")
    assert two["loss"] != pytest.approx(one["loss"], rel=1e-3)
    assert two["loss"][-1] < two["loss"][0]


def test_devices_by_name_and_strategies_that_are_left_alone():
    program = """
        import tensorflow as tf
        named = tf.distribute.MirroredStrategy(["WGPU:1", "WGPU:0"])
        print(named.extended.worker_devices)
        print(tf.distribute.MirroredStrategy().extended.worker_devices)
    """
    found = python(program, **TWO)
    assert found.stdout.count("WGPU:1") == 2, found.stderr[-2000:]
    alone = python(program, TF_WGPU_DISTRIBUTE="off", **TWO)
    assert alone.stdout.splitlines()[1].count("CPU:0") == 1, alone.stdout + alone.stderr[-2000:]


def test_two_devices_have_counters_and_memory_of_their_own():
    found = python(
        """
        import tensorflow as tf, tensorflow_wgpu
        with tf.device("WGPU:1"):
            x = tf.ones([1 << 20])
            y = x + 1.0
        with tf.device("WGPU:0"):
            z = y * 2.0
        assert float(tf.reduce_sum(z)) == 4 * (1 << 20)
        told = tensorflow_wgpu.statistics()
        assert told["WGPU:0"]["dispatches"] > 0 and told["WGPU:1"]["dispatches"] > 0, told
        peaks = [tf.config.experimental.get_memory_info(f"WGPU:{i}")["peak"] for i in range(2)]
        assert peaks[0] >= 4 << 20 and peaks[1] >= 8 << 20, peaks
        """,
        **TWO,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    limits = [
        int(
            python(
                """
                from tensorflow.python.client import device_lib
                found = device_lib.list_local_devices()
                print([d.memory_limit for d in found if d.device_type == "WGPU"][0])
                """,
                **env,
            ).stdout
        )
        for env in (ONE, TWO)
    ]
    # The free memory of the system changes meanwhile.
    assert 0.3 < limits[1] / limits[0] < 0.7, limits


def test_a_replica_that_runs_out_of_memory_is_an_error_for_all():
    found = python(
        """
        import tensorflow as tf
        strategy = tf.distribute.MirroredStrategy()

        @tf.function
        def step(n):
            def replica():
                context = tf.distribute.get_replica_context()
                mine = tf.where(tf.equal(context.replica_id_in_sync_group, 1), n, 4)
                return context.all_reduce("sum", tf.reduce_sum(tf.ones([mine])))

            return strategy.run(replica)

        try:
            step(tf.constant(1 << 28))
        except tf.errors.ResourceExhaustedError as error:
            print("exhausted", "replica_1" in str(error))
        print([float(x) for x in strategy.experimental_local_results(step(tf.constant(8)))])
        """,
        TF_WGPU_MAX_MEMORY="256M",
        **TWO,
    )
    assert found.stdout.splitlines() == ["exhausted True", "[12.0, 12.0]"], found.stderr[-3000:]


def workers(count: int, *arguments: str, **env: str) -> list[subprocess.Popen[str]]:
    spec = cluster(worker=count)
    return [start("worker.py", *arguments, **task(spec, "worker", i), **env) for i in range(count)]


@pytest.mark.parametrize("communication", ["RING", "AUTO"])
def test_workers_train_as_one_process(communication: str):
    alone = told(start("worker.py", "loop", communication, **TWO))
    together = [told(p) for p in workers(2, "loop", communication, **ONE)]
    assert alone["replicas"] == 2
    for i, worker in enumerate(together):
        assert worker["replicas"] == 2
        assert worker["devices"] == devices(1, f"/job:worker/replica:0/task:{i}")
        np.testing.assert_allclose(worker["loss"], alone["loss"], rtol=1e-4)
        assert worker["weights"] == pytest.approx(alone["weights"], rel=1e-5)


def test_four_workers_train_as_one_process():
    alone = told(start("worker.py", "loop", "RING", **ONE))
    for worker in [told(p) for p in workers(4, "loop", "RING", **ONE)]:
        assert worker["replicas"] == 4
        np.testing.assert_allclose(worker["loss"], alone["loss"], rtol=1e-4)


def test_a_worker_that_was_killed_goes_on_from_its_backup(tmp_path: Path):
    def run(folder: Path, **env: str) -> list[subprocess.Popen[str]]:
        spec = cluster(worker=2)
        given = ("worker.py", "fit", "AUTO", str(folder))
        own = [{**task(spec, "worker", i), **(env if i == 1 else {}), **ONE} for i in range(2)]
        return [start(*given, **variables) for variables in own]

    whole = [told(p) for p in run(tmp_path / "whole")]
    killed = run(tmp_path / "backup", DIE_AT="2")
    outputs = [p.communicate(timeout=240) for p in killed]
    assert killed[1].returncode == 9
    assert killed[0].returncode not in (0, None), "the other worker is told"
    # TensorFlow's error, or that of its coordination service, whichever comes first.
    reason = re.search(r"unavailable|aborted|heartbeat", outputs[0][1], re.IGNORECASE)
    assert reason, outputs[0][1][-4000:]
    again = run(tmp_path / "backup")
    outputs = [p.communicate(timeout=240) for p in again]
    for (out, err), process, reference in zip(outputs, again, whole):
        assert process.returncode == 0, err[-3000:]
        assert "epoch 0" not in out
        assert "epoch 2" in out
        ended = json.loads(out.splitlines()[-1])
        np.testing.assert_allclose(ended["loss"][-1], reference["loss"][-1], rtol=1e-4)
        assert ended["weights"] == pytest.approx(reference["weights"], rel=1e-5)


def test_a_coordinator_with_workers_and_a_parameter_server():
    spec = cluster(chief=1, worker=2, ps=1)
    servers = [
        start("coordinator.py", job, **task(spec, job, i), **ONE)
        for job, i in (("worker", 0), ("worker", 1), ("ps", 0))
    ]
    try:
        found = told(start("coordinator.py", "chief", **task(spec, "chief", 0), **ONE))
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert found["devices"] == ["/device:WGPU:0"]
    assert "/job:ps/" in found["on"]
    # Each step takes 0.01 times twice its number, six steps of 0 to 5.
    np.testing.assert_allclose(found["weights"], np.full((4, 4), 1 - 0.01 * 2 * 15), rtol=1e-5)


def test_a_service_of_datasets_feeds_the_device():
    ran = python(
        """
        import keras, tensorflow as tf
        service = tf.data.experimental.service
        dispatcher = service.DispatchServer()
        address = dispatcher.target.partition("://")[2]
        worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
        data = tf.data.Dataset.range(32).map(lambda i: (tf.fill([4], tf.cast(i, tf.float32)), i))
        way = service.distribute(processing_mode="parallel_epochs", service=dispatcher.target)
        data = data.batch(8).apply(way)
        total = tf.function(lambda x: tf.reduce_sum(x * 2.0))
        sums = [total(x) for x, _ in data]
        print(sum(map(float, sums)), sums[0].device[-6:])
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, "relu")])
        model.compile("sgd", "mse")
        print(len(model.fit(data, epochs=2, verbose=0).history["loss"]))
        """
    )
    assert ran.stdout.splitlines() == [f"{2.0 * 4 * sum(range(32))} WGPU:0", "2"], ran.stderr[
        -3000:
    ]
