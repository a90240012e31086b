"""The check of an adapter's numbers, on drivers with correct and with wrong results.

The fault layer (tests/fault_layer) simulates a driver that turns additions into subtractions. Each
test runs in a separate process.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from fault_layer import behind
from support import python, shares_memory

PROGRAM = """
    import numpy as np
    import tensorflow as tf

    a = np.random.default_rng(1).integers(-3, 4, (64, 96)).astype("float32")
    product = tf.matmul(tf.constant(a), tf.constant(a), transpose_b=True)
    np.testing.assert_array_equal(product, a @ a.T)
    doubled = tf.add(tf.constant(a, tf.float64), tf.constant(a, tf.float64))
    np.testing.assert_array_equal(doubled, 2 * a.astype("float64"))
    print("on", product.device, doubled.device, len(tf.config.list_physical_devices("WGPU")))
"""


@pytest.fixture(scope="module")
def layer(tmp_path_factory):
    """Variables for a process behind the layer, with the check on."""
    return {**behind(tmp_path_factory.mktemp("layer")), "TF_WGPU_CHECK": "on"}


@pytest.fixture
def environment(layer, tmp_path):
    """The same variables with a separate cache for the test."""
    return {**layer, "TF_WGPU_CACHE": str(tmp_path), "TF_WGPU_LOG": "tensorflow_wgpu=info"}


def run(environment):
    """The line that the program prints, and the lines of its log with the given words."""
    done = python(PROGRAM, **environment)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("on"))

    def lines(words):
        return [line for line in done.stderr.splitlines() if words in line]

    return line, lines


def test_right_numbers_are_checked_once_and_without_a_word(environment, tmp_path):
    for checks in (1, 0):
        line, lines = run(environment)
        assert line.count("WGPU:0") == 2
        assert len(lines("checked in")) == checks
        assert not lines("wrong")
    assert [file.suffix for file in tmp_path.iterdir()].count(".checked") == 1


def test_options_are_checked_as_well(environment, tmp_path):
    environment = {**environment, "TF_WGPU_BARRIERS": "data", "TF_WGPU_STAGING": "off"}
    options = [".barriers", ".unstaged"] if shares_memory() else [".barriers"]
    for checks in (1 + len(options), 0):
        line, lines = run(environment)
        assert line.count("WGPU:0") == 2
        assert len(lines("checked in")) == checks
        assert not lines("wrong")
    suffixes = [file.suffix for file in tmp_path.iterdir()]
    for suffix in (".checked", *options):
        assert suffixes.count(suffix) == 1


def test_the_simplest_kernels_are_used_where_others_compute_wrong(environment):
    environment = {**environment, "FAULT_LAYER_MISCOMPILE": "usual"}
    for cases in (True, False):
        line, lines = run(environment)
        assert line.count("WGPU:0") == 2
        assert bool(lines("is wrong with kernels of the profile")) == cases
        (told,) = lines("so the simplest ones are used, which are right and slower")
        assert "warn" in told


def test_a_device_that_computes_wrong_is_not_offered(environment):
    environment = {**environment, "FAULT_LAYER_MISCOMPILE": "all"}
    for cases in (True, False):
        line, lines = run(environment)
        assert line.count("CPU:0") == 2
        assert line.endswith(" 0")
        assert bool(lines("a matrix product is wrong with kernels of the profile webgpu")) == cases
        (told,) = lines("a WGPU device is left out")
        assert "computes wrong numbers: update its driver" in told


def test_the_check_can_be_switched_off(environment):
    environment = {
        **environment,
        "FAULT_LAYER_MISCOMPILE": "all",
        "TF_WGPU_CHECK": "off",
    }
    done = python(PROGRAM, **environment)
    assert done.returncode != 0
    assert "AssertionError" in done.stderr
    assert "checked in" not in done.stderr


def test_processes_that_start_together_agree(environment, tmp_path):
    """The others wait for the first one, for a while, or come to the same verdict by themselves."""
    environment = {**environment, "FAULT_LAYER_MISCOMPILE": "usual"}
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: python(PROGRAM, **environment), range(3)))
    for process in done:
        assert process.returncode == 0, process.stderr
        assert process.stderr.count("so the simplest ones are used") == 1
    assert [file.suffix for file in tmp_path.iterdir()].count(".checked") == 1


def test_the_self_test_shows_the_verdict(environment):
    run(environment)
    done = python(
        """
        import sys
        from tensorflow_wgpu.__main__ import main
        from tensorflow_wgpu.self_test import _cases

        _cases.CASES[:] = [case for case in _cases.CASES if case.family == "softmax"]
        sys.argv = ["doctor", "--self-test"]
        sys.exit(main())
        """,
        **environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nnumbers   right, as checked at the adapter's first use\n" in done.stdout


def test_each_case_has_a_line(environment):
    done = python(PROGRAM, **{**environment, "TF_WGPU_LOG": "tensorflow_wgpu=debug"})
    assert done.returncode == 0, done.stderr
    for case in ("a matrix product", "exponentials at their edges", "sums by segment"):
        assert f"{case} is right" in done.stderr, done.stderr


def test_the_doctor_knows_the_verdict(environment):
    run(environment)
    done = python(
        "import runpy; runpy.run_module('tensorflow_wgpu', run_name='__main__')", **environment
    )
    assert "numbers checked at its first use: right" in done.stdout, done.stdout + done.stderr
