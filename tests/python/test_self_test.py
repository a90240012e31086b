"""`python -m tensorflow_wgpu --self-test`."""

import itertools
import json
import re

import numpy as np
import pytest
import tensorflow as tf
from support import python
from tensorflow.python.eager import context
from tensorflow_wgpu import _library
from tensorflow_wgpu.self_test import _cases, _report, _run

PROGRAM = "import sys; sys.argv = ['doctor', '--self-test'{}]\n{}\n"
RUN = "from tensorflow_wgpu.__main__ import main; sys.exit(main())"
#: Only two rows of the table; the second one computes another result on WGPU.
PLANTED = """
from tensorflow_wgpu.self_test import _cases
def wrong(t):
    import tensorflow as tf
    x = t.normal(3, 4)
    return {"Mul": x * (2.0 if "WGPU" in x.device else 2.5)}
_cases.CASES[:] = [c for c in _cases.CASES if c.family == "softmax"]
_cases.case("planted")(wrong)
"""


def run(case, dtype: str = "float32", lacks: tuple[str, ...] = ()):
    """One case on WGPU."""
    return _run.one(case, dtype, "WGPU:0", 1, list(lacks))


def row(fn, **options) -> _cases.Case:
    """A case that is in no table."""
    values = {"types": ("float32",), "tolerance": _cases.TOLERANCE, "exact": False, **options}
    return _cases.Case("family", "name", fn, **values)


def test_it_passes_within_a_minute_and_names_the_adapter():
    ran = python(PROGRAM.format("", RUN))
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    lines = ran.stdout.splitlines()
    adapter = next(a for a in _library.report()["adapters"] if a["device"] == "WGPU:0")
    assert adapter["name"] in lines[0]
    for case in _cases.CASES:
        assert any(re.match(rf"{case.family} +passed ", line) for line in lines), case.family
    assert re.search(r"cases: \d+ passed\. \d+ s\.", lines[-1]), lines[-1]
    assert _report.ISSUE not in ran.stdout


def test_every_family_of_the_registry_has_a_row():
    families = {op["family"] for op in _library.report()["ops"]} | {"fused"}
    rows = {case.family for case in _cases.CASES}
    assert rows == families, "python/tensorflow_wgpu/self_test/_cases.py"
    names = [case.name for case in _cases.CASES]
    assert len(set(names)) == len(names)


def test_rows_of_a_family_stand_together():
    """A family is one line of the report."""
    families = [family for family, _ in itertools.groupby(c.family for c in _cases.CASES)]
    assert len(set(families)) == len(families), families


def test_a_planted_wrong_result_is_told_and_is_the_exit_code():
    ran = python(PROGRAM.format("", PLANTED + RUN))
    assert ran.returncode == 1, ran.stdout + ran.stderr[-4000:]
    assert re.search(r"^softmax +passed", ran.stdout, re.MULTILINE)
    assert re.search(r"^planted +FAILED +wrong float32 and 1 more: Mul$", ran.stdout, re.MULTILINE)
    block = ran.stdout.partition(_report.ISSUE)[2]
    for part in ("adapter ", "driver ", "tensorflow-wgpu", tf.__version__, "seed 1"):
        assert part in block, block
    assert re.search(r"planted/wrong float32, seed 1\n  Mul: 12 of 12 values are off", block)
    assert "arguments float32[3,4]" in block


#: Times of candidates, as a GPU with TF_WGPU_AUTOTUNE=1 has them. Software adapters are not tuned.
TUNED = """
from tensorflow_wgpu import _library
before = _library.tuning
def tuning():
    assert before() == {"WGPU:0": []}
    return {"WGPU:0": [{"class": {"m": "64"}, "candidates": []}]}
_library.tuning = tuning
"""


def test_json_has_the_times_of_tuning_for_a_tool():
    ran = python(PROGRAM.format(", '--json'", PLANTED + TUNED + RUN))
    found = json.loads(ran.stdout)
    assert found["tuning"] == [{"class": {"m": "64"}, "candidates": []}], ran.stderr[-4000:]


def test_json_holds_the_same():
    ran = python(PROGRAM.format(", '--json'", PLANTED + RUN))
    assert ran.returncode == 1
    found = json.loads(ran.stdout)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"])
    assert "tuning" not in found, "nobody asked for it"
    assert (found["kind"], found["schema"], found["ok"]) == ("self-test", 1, False)
    assert found["adapter"]["name"]
    assert found["versions"]["tensorflow"] == tf.__version__
    ends = {(case["case"], case["dtype"]): case["status"] for case in found["cases"]}
    assert ends["softmax", "float32"] == "passed"
    assert ends["wrong", "float16"] == "failed"


def test_without_a_device_it_fails():
    ran = python(PROGRAM.format("", RUN), TF_WGPU_VISIBLE_DEVICES="-1")
    assert ran.returncode == 1
    assert "there is no WGPU device" in ran.stdout


@pytest.mark.parametrize(
    ("got", "want", "exact", "message"),
    [
        ([1.0, 2.0], [1.0, 2.00001], False, ""),
        ([1.0, 2.0], [1.0, 2.1], False, "1 of 2 values are off (tolerance"),
        ([np.nan, np.inf], [np.nan, np.inf], False, ""),
        ([np.nan], [1.0], False, "1 of 1 values are off"),
        ([np.inf], [-np.inf], False, "1 of 1 values are off"),
        ([1.0], [1.0 + 2**-23], True, "must be equal); at [0]"),
        ([np.nan], [np.nan], True, ""),
        ([1.0], [1.0, 2.0], False, "shape [1] came, [2] was expected"),
        ([], [], False, ""),
    ],
)
def test_comparison(got, want, exact, message):
    case = row(None, exact=exact)
    arrays = [np.asarray(x, "float32") for x in (got, want)]
    found = _run.compare(*arrays, case, "float32")[1]
    assert (message in found) if message else (found == "")


def test_types_are_compared():
    case, x = row(None), np.zeros(3, "float32")
    assert "float64 came" in _run.compare(x.astype("float64"), x, case, "float32")[1]
    # The reference that the CPU computes in float32, because it has no better float16.
    assert _run.compare(x.astype("float16"), x, case, "float16") == (0.0, "")


def test_an_op_without_a_kernel_does_not_fall_back():
    def greedy(t):
        decoded = tf.raw_ops.CTCGreedyDecoder(
            inputs=t.normal(3, 1, 4), sequence_length=tf.constant([3])
        )
        return {"CTCGreedyDecoder": decoded.log_probability}

    result = run(row(greedy))
    assert result.status == "failed"
    assert "CTCGreedyDecoder" in result.message
    result = run(row(greedy), lacks=("int64",))
    assert (result.status, result.message) == ("not offered", "the adapter lacks int64")


def test_a_graph_that_was_not_fused_is_told():
    def plain(t):
        return {"_WgpuFusedMatMul": t.fused("_WgpuFusedMatMul", lambda x: x @ x, t.normal(4, 4))}

    result = run(row(plain))
    assert result.status == "failed"
    assert "the graph optimizer made no _WgpuFusedMatMul" in result.message


def test_graphs_that_others_collected_do_not_count():
    """A profile of Keras's callback may leave the collection of graphs on."""

    def plain(t):
        return {"_WgpuFusedMatMul": t.fused("_WgpuFusedMatMul", lambda x: x @ x, t.normal(4, 4))}

    context.context().enable_graph_collection()
    with tf.device("WGPU:0"):
        tf.function(lambda x: tf.nn.bias_add(x @ x, x[0]))(tf.ones([4, 4]))
    assert run(row(plain)).status == "failed"
