"""The wheel, the doctor, and the environment variables that choose devices."""

import importlib.metadata
import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_wgpu
from support import python
from tensorflow_wgpu import _doctor, _probe

# In Python's notation: Cargo has 0.1.0-alpha.1 for 0.1.0a1.
VERSION = re.sub(
    r"-(a|b|rc)\w*\.",
    r"\1",
    re.search(
        r'^version = "(.+)"$',
        (Path(__file__).parents[2] / "Cargo.toml").read_text(encoding="utf-8"),
        re.MULTILINE,
    )[1],
)


def doctor(*arguments: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    return python(
        f"""
        import runpy, sys
        sys.argv = ["tensorflow_wgpu", *{arguments!r}]
        runpy.run_module("tensorflow_wgpu", run_name="__main__", alter_sys=True)
        """,
        **env,
    )


# The wheel


def installed_files() -> list[str]:
    return [str(f) for f in importlib.metadata.files("tensorflow-wgpu") or []]


def test_the_wheel_holds_one_library_where_tensorflow_looks():
    libraries = [f for f in installed_files() if f.endswith((".so", ".dylib", ".dll"))]
    assert len(libraries) == 1
    assert re.fullmatch(r"tensorflow-plugins/(lib)?tensorflow_wgpu\.(so|dylib|dll)", libraries[0])
    assert "tensorflow_wgpu/__init__.py" in installed_files()
    assert not any(f.startswith(("tests/", "src/", "python/")) for f in installed_files())


def test_the_wheel_serves_every_python_on_this_platform():
    wheel = importlib.metadata.distribution("tensorflow-wgpu").read_text("WHEEL")
    (tag,) = re.findall(r"^Tag: (.+)$", wheel, re.MULTILINE)
    assert tag.startswith("py3-none-")
    assert not tag.endswith("-any")
    if sys.platform == "linux":
        # The wheel of `make wheels` names the glibc that it needs.
        assert re.fullmatch(
            rf"py3-none-(many)?linux_(2_28_)?{re.escape(platform.machine())}", tag
        ), tag
    assert "Root-Is-Purelib: false" in wheel


def test_the_wheel_says_what_it_is():
    metadata = importlib.metadata.metadata("tensorflow-wgpu")
    assert metadata["Version"] == VERSION == tensorflow_wgpu.__version__
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    # No requirement outside of the extra: see pyproject.toml.
    assert [r for r in metadata.get_all("Requires-Dist") or [] if "extra" not in r] == []
    assert any("/LICENSE-MIT" in f for f in installed_files())
    assert any("/LICENSE-APACHE" in f for f in installed_files())
    assert any("/THIRD-PARTY-LICENSES.txt" in f for f in installed_files())
    assert any(f.endswith(".dist-info/sboms/tensorflow-wgpu.cdx.json") for f in installed_files())


def test_the_library_needs_no_tensorflow():
    ran = python(
        """
        import sys, tensorflow_wgpu
        report = tensorflow_wgpu.report()
        assert "tensorflow" not in sys.modules and "numpy" not in sys.modules
        assert report["tensorflow"] is None and report["variables"] is None
        print(report["version"], report["adapters"][0]["device"])
        """
    )
    assert ran.stdout.split() == [VERSION, "WGPU:0"], ran.stderr


def test_tensorflow_may_be_imported_after_a_report():
    ran = python(
        """
        import tensorflow_wgpu
        assert tensorflow_wgpu.report()["tensorflow"] is None
        import tensorflow as tf
        tf.config.experimental.enable_op_determinism()
        report = tensorflow_wgpu.report()
        print(len(tf.config.list_physical_devices("WGPU")) > 0, report["deterministic"])
        """
    )
    assert ran.stdout.split() == ["True", "True"], ran.stderr


@pytest.mark.parametrize(
    ("wanted", "why"), [("GPU", "TensorFlow is built with CUDA"), ("TPU", "neither WGPU nor GPU")]
)
def test_devices_keep_their_type_where_another_cannot_be_had(wanted, why):
    """One line gives the reason; the doctor gives advice. test_drop_in.py covers the case in which
    it works.
    """
    assert tf.test.is_built_with_cuda()
    ran = python(
        """
        import tensorflow as tf, tensorflow_wgpu
        print(*(d.name for d in tf.config.list_physical_devices() if d.device_type != "CPU"))
        print((tf.ones(2) + 1.0).device, *tensorflow_wgpu.statistics())
        """,
        TF_WGPU_DEVICE_TYPE=wanted,
    )
    assert ran.stdout.splitlines() == [
        "/physical_device:WGPU:0",
        "/job:localhost/replica:0/task:0/device:WGPU:0 WGPU:0",
    ], ran.stderr
    (line,) = [line for line in ran.stderr.splitlines() if "TF_WGPU_DEVICE_TYPE" in line]
    assert line.startswith(f"tensorflow-wgpu: warn: TF_WGPU_DEVICE_TYPE={wanted}: {why}")
    assert line.endswith("; the devices stay WGPU")
    probe = {**facts()["tensorflow"], "log": [line]}
    ((severity, what, do),) = _doctor.diagnose_tensorflow(facts(tensorflow=probe))
    assert (severity, what) == ("warning", line.removeprefix("tensorflow-wgpu: warn: "))
    assert "tensorflow-cpu" in do


@pytest.mark.parametrize(
    ("variable", "seen"), [(None, "False True"), ("0", "False True"), ("1", "True True")]
)
def test_the_library_sees_when_ops_are_to_be_deterministic(variable, seen):
    ran = python(
        """
        import tensorflow as tf, tensorflow_wgpu
        before = tensorflow_wgpu.report()["deterministic"]
        tf.config.experimental.enable_op_determinism()
        print(before, tensorflow_wgpu.report()["deterministic"])
        """,
        TF_DETERMINISTIC_OPS=variable,
    )
    assert ran.stdout.strip() == seen, ran.stderr


# The doctor


def test_the_doctor_finds_nothing_wrong_here():
    ran = doctor("--json")
    found = json.loads(ran.stdout)
    assert [p for p in found["problems"] if p["severity"] == "error"] == []
    assert found["ok"]
    assert ran.returncode == 0
    library, seen = found["library"]["result"], found["tensorflow"]["result"]
    assert seen["version"] == tf.__version__
    assert seen["devices"] == [
        d.name.replace("/physical_device:", "") for d in tf.config.list_physical_devices("WGPU")
    ]
    assert seen["variables"]["api"]
    assert seen["hooks"]
    used = [a for a in library["adapters"] if a["device"]]
    assert len(used) == len(seen["devices"])
    for adapter in used:
        assert adapter["name"]
        assert adapter["backend"] in ("Vulkan", "Metal", "Dx12", "vulkan", "metal", "dx12")
        assert adapter["memory"]["total"] >= adapter["memory"]["free"] > 0
        assert adapter["limits"]["max_binding"] >= 128 << 20
        assert adapter["native_float16"] in (True, False)
        assert set(adapter["features"]) == {"int64", "float64", "subgroups", "timestamps"}
    ops = {op["op"]: op for op in library["ops"]}
    assert {"T": "float32"} in ops["MatMul"]["types"]
    assert library["types"]["float32"] <= len(ops)


def test_the_doctor_tells_its_version():
    assert doctor("--version").stdout.strip() == VERSION


def test_the_doctor_speaks_to_people():
    ran = doctor("--ops")
    assert ran.returncode == 0
    assert f"tensorflow-wgpu {VERSION}" in ran.stdout
    assert f"TensorFlow {tf.__version__} (supported)" in ran.stdout
    assert re.search(r"^  WGPU:0  \S", ran.stdout, re.MULTILINE)
    assert re.search(r"^    memory [\d.]+ [KMGT]iB, ", ran.stdout, re.MULTILINE)
    assert re.search(r"^    matrix units: \S", ran.stdout, re.MULTILINE)
    assert re.search(r"^  MatMul: .*T=float32", ran.stdout, re.MULTILINE)
    assert "ERROR" not in ran.stdout


def test_registered_ops_are_the_reported_ones():
    """TensorFlow's own list of kernels agrees with the library's report, except for the graph
    optimizer's ops.
    """
    from tensorflow.python.framework import kernels

    registered = {
        k.op for k in kernels.get_all_registered_kernels().kernel if k.device_type == "WGPU"
    }
    registered = {op for op in registered if not op.startswith("_Wgpu")}
    assert registered == {op["op"] for op in tensorflow_wgpu.report()["ops"]}


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("TF_WGPU_VISIBLE_DEVICES", "", "hides every device"),
        ("TF_WGPU_VISIBLE_DEVICES", "-1", "hides every device"),
        ("TF_WGPU_VISIBLE_DEVICES", "99", "names device 99"),
        ("TF_WGPU_VISIBLE_DEVICES", "first", "is not a device index"),
        ("WGPU_BACKEND", "vulcan", "vulcan is not a graphics API"),
        ("WGPU_BACKEND", "dx12" if sys.platform != "win32" else "metal", "this system has no"),
        ("WGPU_POWER_PREF", "medium", "is none of low, high, none"),
        ("WGPU_ADAPTER_NAME", "no such adapter", "does not match"),
    ],
)
def test_the_doctor_names_the_variable_that_hides_devices(variable, value, says, monkeypatch):
    monkeypatch.setenv(variable, value)
    probe = _probe.run("library")
    ((severity, what, do),) = _doctor.diagnose_library(facts(library=probe))
    assert severity == "error"
    assert says in what
    assert do.startswith(f"Unset {variable}")


@pytest.mark.skipif(
    sys.platform != "linux" or Path("/dev/nvidia0").exists(), reason="other advice is given there"
)
@pytest.mark.parametrize(
    ("nodes", "may", "says"),
    [
        ([], True, "pass it through"),
        ([Path("/dev/dri/renderD128")], False, "usermod -aG render"),
        ([Path("/dev/dri/renderD128")], True, "take a newer Mesa"),
    ],
)
def test_the_doctor_says_why_there_is_only_a_software_adapter(nodes, may, says, monkeypatch):
    monkeypatch.setattr(_doctor, "render_nodes", lambda: nodes)
    monkeypatch.setattr(_doctor, "readable", lambda node: may)
    assert says in _doctor.software_advice()


@pytest.mark.parametrize(
    ("adapter", "environment", "says"),
    [
        ({"index": None, "rejected": "it has no compute shaders"}, {}, "not used: it has no"),
        (
            {"index": 1, "rejected": None},
            {"TF_WGPU_VISIBLE_DEVICES": "0"},
            "hidden by TF_WGPU_VISIBLE_DEVICES",
        ),
        ({"index": 1, "rejected": None}, {}, "TF_WGPU_VISIBLE_DEVICES=1 takes it"),
    ],
)
def test_the_doctor_says_why_an_adapter_is_no_device(adapter, environment, says):
    assert says in _doctor.why_no_device(adapter, environment)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"sizes": [], "policy": "probed"}, "none"),
        ({"sizes": ["float16 16x16x16"], "policy": "off"}, "float16 16x16x16; not used"),
        (
            {"sizes": ["float16 8x8x8", "float32 8x8x8"], "policy": "probed"},
            "float16 8x8x8, float32 8x8x8; used where test products are right and faster",
        ),
        ({"sizes": ["float16 8x8x8"], "policy": "forced"}, "float16 8x8x8; used, since"),
    ],
)
def test_the_doctor_tells_of_matrix_units(found, says):
    assert _doctor.describe_matrix_units(found).startswith(says)


def test_the_doctor_fails_without_a_device():
    ran = doctor("--json", TF_WGPU_VISIBLE_DEVICES="")
    assert ran.returncode == 1
    found = json.loads(ran.stdout)
    assert found["tensorflow"]["result"]["devices"] == []
    (error,) = [p for p in found["problems"] if p["severity"] == "error"]
    assert "hides every device" in error["what"]


def test_the_doctor_works_without_tensorflow():
    ran = python(
        """
        import importlib.util, json, sys
        from tensorflow_wgpu import _doctor, _probe
        find_spec = importlib.util.find_spec
        def without(name, *rest):
            return None if name == "tensorflow" else find_spec(name, *rest)
        importlib.util.find_spec = without
        print(json.dumps(_doctor.examine()))
        """
    )
    found = json.loads(ran.stdout)
    assert not found["ok"]
    assert found["library"]["result"]["adapters"]
    (error,) = [p for p in found["problems"] if p["severity"] == "error"]
    assert error["what"] == "TensorFlow is not installed."
    assert "pip install" in error["do"]


def test_the_doctor_misses_a_library(tmp_path):
    ran = doctor(TF_PLUGGABLE_DEVICE_LIBRARY_PATH=str(tmp_path / "nothing.so"))
    assert ran.returncode == 1
    assert "holds no tensorflow_wgpu library" in ran.stdout
    assert "-> " in ran.stdout


def facts(**changes: object) -> dict:
    """Facts of a healthy machine, with changes."""
    library = {
        "problem": None,
        "warnings": [],
        "environment": {},
        "adapters": [],
        "types": {"int64": 1},
        "ops": [],
    }
    seen = {
        "version": "2.21.0",
        "devices": ["WGPU:0"],
        "failures": {},
        "variables": None,
        "hooks": True,
    }
    return {
        "library_path": "x",
        "library": {"result": library, "error": None, "log": []},
        "tensorflow_installed": {"tensorflow": "2.21.0"},
        "tensorflow": {"result": seen, "error": None, "log": []},
        **changes,
    }


def test_a_healthy_machine_has_no_problem():
    assert list(_doctor.diagnose(facts())) == []


def test_crashes_and_old_versions_are_named():
    crashed = {"result": None, "error": "the process was killed by signal 11", "log": []}
    ((_, what, do),) = _doctor.diagnose(facts(library=crashed))
    assert "signal 11" in what
    assert "driver" in do
    ((_, what, do),) = _doctor.diagnose(facts(tensorflow=crashed))
    assert "imports TensorFlow" in what
    old = {**facts()["tensorflow"]["result"], "version": "2.15.1"}
    ((_, what, do),) = _doctor.diagnose(facts(tensorflow={"result": old, "error": None, "log": []}))
    assert "2.15.1" in what
    assert ">=2.16" in do
    two = {"tensorflow": "2.21.0", "tensorflow-cpu": "2.20.0"}
    ((severity, what, _),) = _doctor.diagnose(facts(tensorflow_installed=two))
    assert severity == "warning"
    assert "tensorflow-cpu 2.20.0" in what


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("2.15.1", False),
        ("2.16.0", True),
        ("2.21.0", True),
        ("2.22.0rc0", True),
        ("2.23.0", False),
        ("3.0", False),
    ],
)
def test_supported_versions(version, supported):
    assert _doctor.is_supported(version, "linux") is supported


def test_windows_lacks_two_releases():
    """Their DLLs export no access to variables."""
    works = [minor for minor in range(15, 24) if _doctor.is_supported(f"2.{minor}.0", "win32")]
    assert works == [16, 17, 18, 19, 22]


# The environment, through TensorFlow


def test_visible_devices_chooses_and_orders():
    code = "import tensorflow as tf; print(len(tf.config.list_physical_devices('WGPU')))"
    assert python(code, TF_WGPU_VISIBLE_DEVICES="0").stdout.strip() == "1"
    hidden = python(code, TF_WGPU_VISIBLE_DEVICES="-1")
    assert hidden.stdout.strip() == "0"
    assert "tensorflow-wgpu" not in hidden.stderr, "nothing is wrong"
