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


def broken_library(tmp_path: Path, end: str = "abort()") -> Path:
    """A library that ends the process when it is loaded, by a call of C."""
    source, library = tmp_path / "broken.c", tmp_path / "libbroken.so"
    source.write_text(
        f"#include <stdlib.h>\n__attribute__((constructor)) static void end(void) {{ {end}; }}\n"
    )
    subprocess.run([program("cc"), "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture(params=["abort()"])
def broken_driver(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The manifest of a driver that crashes when it is loaded."""
    library = broken_library(tmp_path, request.param)
    manifest = tmp_path / "broken_icd.json"
    driver = {"library_path": str(library), "api_version": "1.3.0"}
    manifest.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    return manifest


def overlay(tmp_path: Path, library: Path, enabled_by: dict[str, str]) -> dict[str, str]:
    """The variable that adds an implicit layer to the machine's, such as those of overlays."""
    layer = {
        "name": "VK_LAYER_an_overlay",
        "type": "GLOBAL",
        "library_path": str(library),
        "api_version": "1.3.0",
        "implementation_version": "1",
        "description": "an overlay",
        "enable_environment": enabled_by,
        "disable_environment": {"NO_OVERLAY": "1"},
    }
    directory = tmp_path / "data" / "vulkan" / "implicit_layer.d"
    directory.mkdir(parents=True)
    manifest = {"file_format_version": "1.0.0", "layer": layer}
    (directory / "overlay.json").write_text(json.dumps(manifest))
    return {"XDG_DATA_HOME": str(tmp_path / "data")}


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


@pytest.mark.parametrize("broken_driver", ["exit(1)", "_Exit(0)"], indirect=True)
def test_a_driver_that_ends_the_process(tmp_path: Path, broken_driver: Path) -> None:
    """LLVM in a driver calls `exit` where it finds a fault of its own."""
    devices, problem, warnings = found(tmp_path, beside(broken_driver))
    assert devices > 0
    assert problem == ""
    (line,) = warnings
    assert re.search(r"broken_icd.json is left out: it crashes \(exit status [01]\)", line)


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


def test_an_overlay_that_crashes(tmp_path: Path) -> None:
    """Its variable may be set in one process and not in another."""
    variables = overlay(tmp_path, broken_library(tmp_path), {"SHOW_OVERLAY": "1"})
    whole = found(tmp_path, variables)
    assert whole[0] > 0
    assert whole[1:] == ("", [])
    devices, _, warnings = found(tmp_path, {**variables, "SHOW_OVERLAY": "1"})
    (line,) = warnings
    assert devices > 0
    assert "all Vulkan layers are left out: one crashes (SIGABRT)" in line
    assert found(tmp_path, variables) == whole


#: The functions by which a process finds out what there is, before it has a device.
ASKED = [
    "vkCreateInstance",
    "vkDestroyInstance",
    "vkEnumeratePhysicalDevices",
    "vkGetDeviceProcAddr",
    "vkEnumerateDeviceExtensionProperties",
    "vkGetPhysicalDeviceMemoryProperties2KHR",
    "vkGetPhysicalDeviceProperties",
    "vkGetPhysicalDeviceProperties2",
    "vkGetPhysicalDeviceProperties2KHR",
    "vkGetPhysicalDeviceFeatures",
    "vkGetPhysicalDeviceFeatures2",
    "vkGetPhysicalDeviceFeatures2KHR",
    "vkGetPhysicalDeviceMemoryProperties",
    "vkGetPhysicalDeviceMemoryProperties2",
    "vkGetPhysicalDeviceQueueFamilyProperties",
    "vkGetPhysicalDeviceFormatProperties",
    "vkGetPhysicalDeviceFormatProperties2",
    "vkGetPhysicalDeviceFormatProperties2KHR",
    "vkGetPhysicalDeviceImageFormatProperties",
    "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR",
]
ALL = os.environ.get("TF_WGPU_FAULTS") == "all"


@pytest.mark.parametrize("status", ["", "1"], ids=["a signal", "an exit"])
@pytest.mark.parametrize("function", ASKED if ALL else ASKED[::5])
def test_every_function_may_crash(
    tmp_path: Path, layer: dict[str, str], function: str, status: str
) -> None:
    """A function that is not called here changes nothing."""
    crash = {**layer, "FAULT_LAYER_CRASH": function, "FAULT_LAYER_EXIT": status}
    devices, problem, warnings = found(tmp_path, crash)
    if devices > 0 and not warnings:
        assert problem == ""
    else:
        lines = [line for line in (*warnings, problem) if line]
        how = "exit status 1" if status else "SIGABRT"
        assert len(lines) == 1, lines
        assert f"crashes ({how})" in lines[0], lines


def test_a_device_that_crashes_when_it_is_asked(tmp_path: Path, layer: dict[str, str]) -> None:
    crash = {**layer, "FAULT_LAYER_CRASH": "vkEnumerateDeviceExtensionProperties"}
    for _ in range(2):
        devices, problem, _ = found(tmp_path, crash)
        assert devices == 0
        assert re.search(r"\S is left out: its Vulkan driver crashes \(SIGABRT\)", problem)
    # Another variable of Vulkan requires another examination.
    assert found(tmp_path, {**layer, "VK_LOADER_DRIVERS_SELECT": "*"})[0] > 0
