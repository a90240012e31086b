"""`tools/packages`: which failures count as WGPU's alone, and that no outcome is lost."""

import sys
from pathlib import Path

import numpy as np
import pytest
from catalogue import PACKAGES, Package
from ledger import Ledger, count
from runs import Limits, Outcome, Runner
from table import alone, markdown, row

PROGRAMS = Path(__file__).parents[2] / "tools" / "packages" / "programs"
# Only a program's process has the folder on its path: `values` is a common name.
sys.path.insert(0, str(PROGRAMS))
from values import Values  # noqa: E402

sys.path.remove(str(PROGRAMS))

FILE = """
import os, time, pytest

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_fails_on_wgpu(): assert os.environ["PACKAGES_DEVICE"] == "cpu"
def test_dies(): os._exit(9)
def test_hangs(): time.sleep(60)
def test_computes():
    while True: pass
@pytest.mark.skip
def test_skipped(): pass
@pytest.fixture
def broken():
    yield
    assert False, "torn down"
def test_torn_down(broken): pass
def test_last(): pass
"""


def test_outcomes_survive_a_process_that_dies(tmp_path):
    (tmp_path / "some_test.py").write_text(FILE)
    package = Package("some", requires=())
    runner = Runner(
        package, Path(sys.executable), tmp_path, tmp_path / "results", "", Limits(1, 60)
    )
    wgpu, cpu = runner.run("some_test.py", "wgpu"), runner.run("some_test.py", "cpu")
    outcomes = {case.partition("::")[2]: outcome.outcome for case, outcome in wgpu.items()}
    assert outcomes == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_fails_on_wgpu": "failed",
        "test_dies": "failed",
        "test_hangs": "failed",
        "test_computes": "failed",
        "test_skipped": "skipped",
        "test_torn_down": "failed",
        "test_last": "passed",
    }
    messages = {case.partition("::")[2]: outcome.message for case, outcome in wgpu.items()}
    assert "ended: 9" in messages["test_dies"]
    assert "more than 1 s" in messages["test_hangs"]
    assert "torn down" in messages["test_torn_down"]
    assert list(alone(wgpu, cpu)) == ["some_test.py::test_fails_on_wgpu"]
    # A second run takes the outcomes of the first, and starts no process.
    (tmp_path / "some_test.py").unlink()
    assert runner.run("some_test.py", "wgpu") == wgpu


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path):
    (tmp_path / "some_test.py").write_text("import nothing_of_this_name")
    runner = Runner(
        Package("some", requires=()),
        Path(sys.executable),
        tmp_path,
        tmp_path / "results",
        "",
        Limits(1, 60),
    )
    outcomes = runner.run("some_test.py", "cpu")
    assert [outcome.outcome for outcome in outcomes.values()] == ["failed"]
    assert any("nothing_of_this_name" in outcome.message for outcome in outcomes.values())


def test_the_table_counts_each_failure_once():
    wgpu = {
        "a": Outcome("passed"),
        "b": Outcome("failed", "x"),
        "c": Outcome("failed", "y"),
        "d": Outcome("skipped"),
    }
    cpu = {"a": Outcome("passed"), "b": Outcome("failed"), "c": Outcome("passed")}
    ours = alone(wgpu, cpu)
    assert ours == {"c": "y"}
    files = [count(wgpu, ours, "1.0"), count({"e": Outcome("passed")}, {}, "1.0")]
    assert row("p", 3, files) == ("p", 2, 3, 5, 2, 1, 1, 1)
    assert "| p | 2 | 3 | 5 | 2 | 1 | 1 | 1 |" in markdown([row("p", 3, files)])


def test_the_ledger_knows_the_files_that_passed(tmp_path):
    path = tmp_path / "ledger.json"
    ledger = Ledger(path)
    right = count({"a": Outcome("passed"), "b": Outcome("failed")}, {}, "1.0")
    wrong = count({"a": Outcome("failed", "x")}, {"a": "x"}, "1.0")
    ledger.add("p", "right.py", right)
    ledger.add("p", "wrong.py", wrong)
    ledger.add("another", "right.py", right)
    assert len(path.read_text().splitlines()) == 2 + 2 * 2 + 3
    again = Ledger(path)
    assert again.find("p", "right.py") == right
    assert again.find("another", "right.py") == right
    assert again.find("p", "wrong.py") is None
    assert again.find("p", "new.py") is None
    Ledger(None).add("p", "right.py", right)


@pytest.mark.parametrize("factor", [1, 100])
def test_values_may_differ_as_far_as_a_disturbed_run(tmp_path, factor):
    class Model:
        def __init__(self):
            self.weights = [np.ones(50, "float32")]

        def get_weights(self):
            return list(self.weights)

        def set_weights(self, weights):
            self.weights = weights

    def program(disturb, change=0.0):
        model = Model()
        disturb(model)
        return {"sum": 1000 * (model.weights[0] + np.float32(change)), "count": np.arange(3)}

    Values(tmp_path / "v.npz", "cpu").compare(program)
    wgpu = Values(tmp_path / "v.npz", "wgpu")
    change = factor * 2.0**-23
    if factor == 1:
        wgpu.compare(lambda disturb: program(disturb, change))
        with pytest.raises(AssertionError, match="1 of 3 differ"):
            wgpu.compare(lambda disturb: {**program(disturb), "count": np.array([0, 1, 3])})
        with pytest.raises(AssertionError, match="not finite"):
            wgpu.compare(lambda disturb: {**program(disturb), "sum": np.array([np.nan])})
    else:
        with pytest.raises(AssertionError, match="sum: off by"):
            wgpu.compare(lambda disturb: program(disturb, change))


def test_rows_pin_versions_and_say_why_files_are_left_out():
    assert len({package.name for package in PACKAGES}) == len(PACKAGES)
    for package in PACKAGES:
        assert all("==" in requirement for requirement in (*package.requires, *package.alone))
        assert bool(package.without) == bool(package.why), package.name
        assert package.files
