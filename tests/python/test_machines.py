"""Broken machines and environments: TensorFlow works without the plug-in, and one line gives the
reason.

Each case runs in a separate process, because the plug-in examines the machine once, when TensorFlow
is imported.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import python
from tensorflow_wgpu import _library

PROGRAM = """
import tensorflow as tf
print("devices:", len(tf.config.list_physical_devices("WGPU")))
print("cpu:", float(tf.reduce_sum(tf.constant([1.0, 2.0]))))
"""


def look(**env: str | None) -> tuple[int, list[str]]:
    """The number of WGPU devices and the plug-in's messages; TensorFlow must work on the CPU in any
    case.
    """
    done = python(PROGRAM, TF_CPP_MIN_LOG_LEVEL="1", **env)
    assert done.returncode == 0, done.stderr
    assert "cpu: 3.0" in done.stdout
    count = next(
        int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("devices:")
    )
    lines = [line for line in done.stderr.splitlines() if "tensorflow-wgpu" in line]
    return count, lines


def refused(why: str, **env: str | None) -> None:
    """Expects no device and one line with `why` in it."""
    count, lines = look(**env)
    assert count == 0
    assert len(lines) == 1, lines
    assert "no WGPU device" in lines[0]
    assert why in lines[0]


#: Whether the tests' devices are software adapters, and no variable asks for them.
LAST_RESORT = all(details["type"] == "Cpu" for details in _library.devices().values()) and not {
    "TF_WGPU_VISIBLE_DEVICES",
    "WGPU_ADAPTER_NAME",
} & set(os.environ)


def test_a_good_machine_is_quiet() -> None:
    count, lines = look(TF_WGPU_VISIBLE_DEVICES="0")
    assert count == 1
    assert lines == []


@pytest.mark.skipif(not LAST_RESORT, reason="there is a GPU, or a variable chooses the device")
def test_a_software_adapter_says_once_that_it_is_one() -> None:
    count, lines = look()
    assert count > 0
    assert len(lines) == 1, lines
    for part in ("software adapter", "CPU device is faster", "TF_WGPU_VISIBLE_DEVICES=-1"):
        assert part in lines[0]
    name = next(iter(_library.devices().values()))["name"]
    assert name in lines[0]
    # Requested by name; and not used.
    assert look(WGPU_ADAPTER_NAME=name)[1] == []
    counted = "import tensorflow as tf; print(len(tf.config.list_physical_devices('WGPU')))"
    assert "software adapter" not in python(counted).stderr


def test_no_vulkan_loader(tmp_path: Path) -> None:
    # An empty file in front of the loader ends the search of the dynamic linker with an error.
    (tmp_path / "libvulkan.so.1").write_bytes(b"")
    (tmp_path / "libvulkan.so").write_bytes(b"")
    refused("no Vulkan", LD_LIBRARY_PATH=str(tmp_path), WGPU_BACKEND="vulkan")


def test_no_driver() -> None:
    refused(
        "mesa-vulkan-drivers", VK_DRIVER_FILES="/nonexistent/driver.json", VK_ICD_FILENAMES=None
    )


@pytest.mark.parametrize(
    "text",
    [
        "{ this is not JSON",
        "{}",
        '{"file_format_version": "1.0.0", '
        '"ICD": {"library_path": "/nonexistent.so", "api_version": "1.3.0"}}',
    ],
    ids=["json", "empty", "library"],
)
def test_broken_driver_manifest(tmp_path: Path, text: str) -> None:
    manifest = tmp_path / "driver.json"
    manifest.write_text(text)
    refused("no usable GPU", VK_DRIVER_FILES=str(manifest), VK_ICD_FILENAMES=None)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("TF_WGPU_VISIBLE_DEVICES", "", "TF_WGPU_VISIBLE_DEVICES is empty"),
        ("TF_WGPU_VISIBLE_DEVICES", "0,zero", '"zero" is not a device index'),
        ("TF_WGPU_VISIBLE_DEVICES", "4711", "names device 4711"),
        ("WGPU_BACKEND", "opengl", "opengl is not a graphics API"),
        ("WGPU_POWER_PREF", "medium", "none of low, high, none"),
        (
            "WGPU_ADAPTER_NAME",
            "no such adapter",
            "WGPU_ADAPTER_NAME=no such adapter does not match",
        ),
    ],
)
def test_values_that_make_no_sense(name: str, value: str, why: str) -> None:
    """The problem in the report is the one that TensorFlow's import prints, see above."""
    told = python(
        "from tensorflow_wgpu import _library; print(_library.report()['problem'])", **{name: value}
    )
    assert why in told.stdout, told.stderr


def test_a_log_filter_that_makes_no_sense_is_ignored() -> None:
    count, _ = look(TF_WGPU_LOG="=nonsense,,//[")
    assert count > 0


def test_the_log_filter_reaches_the_plug_in() -> None:
    _, lines = look(TF_WGPU_LOG="info")
    assert any("adapter" in line for line in lines), lines
    count, lines = look(TF_WGPU_LOG="off", WGPU_BACKEND="opengl")
    assert (count, lines) == (0, [])
