"""Drivers, layers and devices that crash before there is a device: the import survives, one line
names the part that is left out, and the next process reads the stored result.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import fault_layer
import pytest
from support import program, python


def found(tmp_path: Path, variables: dict[str, str]) -> tuple[int, str, list[str]]:
    """The number of adapters that a process finds, the reason why there are no more, and its
    warnings. It does not use TensorFlow, whose import takes seconds.
    """
    ran = python(
        """
        import json
        from tensorflow_wgpu import _library
        said = _library.report()
        print(json.dumps([len(said["adapters"]), said["problem"] or "", said["warnings"]]))
        """,
        TF_WGPU_CACHE=str(tmp_path / "cache"),
        **variables,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return tuple(json.loads(ran.stdout))


@pytest.fixture
def layer(tmp_path: Path) -> dict[str, str]:
    """Variables of a process behind the layer of faults."""
    behind = fault_layer.behind(tmp_path)
    return {name: behind[name] for name in behind if os.environ.get(name) != behind[name]}


@pytest.fixture
def broken_driver(tmp_path: Path) -> Path:
    """The manifest of a driver that crashes when it is loaded."""
    source, library = tmp_path / "broken.c", tmp_path / "libbroken.so"
    source.write_text(
        "#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n"
    )
    subprocess.run([program("cc"), "-shared", "-fPIC", "-o", library, source], check=True)
    manifest = tmp_path / "broken_icd.json"
    driver = {"library_path": str(library), "api_version": "1.3.0"}
    manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    return manifest


def beside(driver: Path) -> dict[str, str]:
    """The variable that adds a driver to the machine's drivers, or to those that a variable
    names.
    """
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    if named:
        return {"VK_DRIVER_FILES": f"{named}{os.pathsep}{driver}"}
    return {"VK_ADD_DRIVER_FILES": str(driver)}


def test_nothing_is_left_out_here(tmp_path: Path) -> None:
    adapters, problem, warnings = found(tmp_path, {})
    assert adapters > 0
    assert (problem, warnings) == ("", [])
    (kept,) = (tmp_path / "cache").glob("vulkan-*.bin")
    before = kept.stat().st_mtime_ns
    assert found(tmp_path, {})[0] == adapters
    assert kept.stat().st_mtime_ns == before, "it is examined once"


def test_a_driver_that_crashes_when_it_is_loaded(tmp_path: Path, broken_driver: Path) -> None:
    for _ in range(2):
        devices, problem, warnings = found(tmp_path, beside(broken_driver))
        assert devices > 0
        assert problem == ""
        (line,) = warnings
        assert re.search(r"the Vulkan driver \S*broken_icd.json is left out: .*SIGABRT", line)


def test_tensorflow_is_imported_all_the_same(tmp_path: Path, broken_driver: Path) -> None:
    ran = python(
        """
        import tensorflow as tf
        print(tf.constant([1.0, 2.0]).device, (tf.constant([1.0, 2.0]) * 2).numpy().tolist())
        """,
        TF_WGPU_CACHE=str(tmp_path),
        **beside(broken_driver),
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.strip().endswith("/device:WGPU:0 [2.0, 4.0]")
    assert ran.stderr.count("broken_icd.json is left out: it crashes (SIGABRT)") == 1


def test_no_driver_but_one_that_crashes(tmp_path: Path, broken_driver: Path) -> None:
    variables = {"VK_DRIVER_FILES": str(broken_driver), "VK_ICD_FILENAMES": str(broken_driver)}
    devices, problem, _ = found(tmp_path, variables)
    assert devices == 0
    assert "no usable GPU: Vulkan is left out: it crashes (SIGABRT)" in problem


def test_a_layer_that_crashes(tmp_path: Path, layer: dict[str, str]) -> None:
    devices, _, warnings = found(tmp_path, {**layer, "FAULT_LAYER_CRASH": "vkCreateInstance"})
    (line,) = warnings
    assert devices > 0
    assert "all Vulkan layers are left out: one crashes (SIGABRT)" in line


def test_a_device_that_crashes_when_it_is_asked(tmp_path: Path, layer: dict[str, str]) -> None:
    crash = {**layer, "FAULT_LAYER_CRASH": "vkEnumerateDeviceExtensionProperties"}
    for _ in range(2):
        devices, problem, _ = found(tmp_path, crash)
        assert devices == 0
        assert re.search(r"\S is left out: its Vulkan driver crashes \(SIGABRT\)", problem)
    # Another variable of Vulkan requires another examination.
    assert found(tmp_path, {**layer, "VK_LOADER_DRIVERS_SELECT": "*"})[0] > 0
