"""A fault of one replica, worker or coordinator is an error of all within TensorFlow's time-outs,
and training continues from the last checkpoint as if there had been no fault.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from clusters import ONE, TWO, cluster, start, task, told
from fault_layer import behind

pytestmark = pytest.mark.nightly

STEPS, AT = "6", "3"
#: The exit status of a script after an error, and of one that was killed.
FAILED, KILLED = 3, 9


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A training without a fault."""
    found = told(start("faulty.py", str(tmp_path_factory.mktemp("whole")), STEPS, **TWO))
    assert found["done"] == int(STEPS)
    assert np.isfinite(found["weights"]).all()
    return found


def failed(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The error that a script prints."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == FAILED, (process.returncode, err[-4000:])
    error = json.loads(out.splitlines()[-1])
    assert error["done"] == int(AT), error
    assert error["seconds"] < 60, error
    return error


def check_checkpoint(folder: Path) -> None:
    """The last step before the fault was saved, whole."""
    saved = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder)))
    values = {
        name.partition("/")[0]: saved.get_tensor(name) for name in saved.get_variable_to_dtype_map()
    }
    assert values["done"] == int(AT)
    assert np.isfinite(values["weights"]).all()


def test_a_lost_device_is_an_error_of_all_replicas(whole: dict[str, Any], tmp_path: Path):
    folder = tmp_path / "saved"
    layer = {**behind(tmp_path), "TF_WGPU_CACHE": str(tmp_path / "cache")}
    lost = failed(start("faulty.py", str(folder), STEPS, **layer, **TWO, AT=AT, DO="lose"))
    assert "lost" in lost["text"], lost
    check_checkpoint(folder)
    again = told(start("faulty.py", str(folder), STEPS, **TWO))
    assert again["done"] == int(STEPS)
    np.testing.assert_allclose(again["weights"], whole["weights"], rtol=1e-5)


@pytest.mark.parametrize(("index", "do"), [(1, "hang"), (0, "hang"), (0, "die"), (1, "die")])
def test_a_worker_that_fails_is_an_error_of_the_others(
    index: int, do: str, whole: dict[str, Any], tmp_path: Path
):
    def workers(**fault: str) -> list[subprocess.Popen[str]]:
        spec = cluster(worker=2)
        given = ("faulty.py", str(tmp_path), STEPS)
        own = [{**task(spec, "worker", i), **ONE, **(fault if i == index else {})} for i in (0, 1)]
        return [start(*given, **variables) for variables in own]

    processes = workers(AT=AT, DO=do)
    if do == "hang":
        # The late worker gets an error, too.
        errors = [failed(p) for p in processes]
        assert errors[1 - index]["seconds"] > 2, "it waits before it gives up"
    else:
        out, err = processes[1 - index].communicate(timeout=120)
        # The service that watches the workers may end the process itself, if the first one is gone.
        assert processes[1 - index].returncode not in (0, None), (out, err[-3000:])
        processes[index].communicate(timeout=120)
        assert processes[index].returncode == KILLED
    check_checkpoint(tmp_path)
    for worker in [told(p) for p in workers()]:
        assert worker["done"] == int(STEPS)
        np.testing.assert_allclose(worker["weights"], whole["weights"], rtol=1e-5)


def test_a_coordinator_that_dies_goes_on_from_its_checkpoint(tmp_path: Path):
    spec = cluster(chief=1, worker=2, ps=1)
    script = "faulty_coordinator.py"
    servers = [
        start(script, job, **task(spec, job, i), **ONE)
        for job, i in (("worker", 0), ("worker", 1), ("ps", 0))
    ]
    chief = {**task(spec, "chief", 0), **ONE}
    try:
        died = start(script, "chief", str(tmp_path), **chief, DIE_AT="4")
        _, err = died.communicate(timeout=120)
        assert died.returncode == KILLED, err[-3000:]
        begin = time.monotonic()
        found = told(start(script, "chief", str(tmp_path), **chief))
        assert time.monotonic() - begin < 60
        assert all(server.poll() is None for server in servers), "they outlive their coordinator"
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert found["began"] == 4
    # The step that was running when the process died counts once: all of 0 to 5, twice 0.01 each.
    np.testing.assert_allclose(found["weights"], np.full((4, 4), 1 - 0.02 * 15), rtol=1e-5)
