"""The messages of a process at import: none if nothing is wrong, and a line for each environment
variable that has no meaning.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow_wgpu
from support import python
from tensorflow_wgpu import _doctor, _probe

ROOT = Path(__file__).parents[2]
#: The variables of a desktop session, whose absence is an error for Mesa.
SESSION = dict.fromkeys(
    ("XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "WAYLAND_SOCKET", "DISPLAY", "NODEVICE_SELECT")
)


def said(code: str, **env: str | None) -> list[str]:
    """The lines on stderr that are not TensorFlow's own."""
    ran = python(code, TF_CPP_MIN_LOG_LEVEL="2", **SESSION, **env)
    assert ran.returncode == 0, ran.stderr
    own = re.compile(r"[IWE]\d{4} |\d{4}-\d\d-\d\d |WARNING: All log messages|To enable the follow")
    return [line for line in ran.stderr.splitlines() if not own.match(line)]


def test_an_import_says_nothing_and_the_first_op_at_most_that_the_adapter_is_software() -> None:
    """Mesa prints "error: XDG_RUNTIME_DIR is invalid or not set in the environment" if an instance
    asks for Wayland's surfaces and there is no session.
    """
    lines = said(
        """
        import sys
        import tensorflow as tf
        assert tf.config.list_physical_devices("WGPU")
        print("first op", file=sys.stderr, flush=True)
        with tf.device("WGPU:0"):
            tf.ones(2).numpy()
        """
    )
    software = all(a["type"] == "Cpu" for a in tensorflow_wgpu.report()["adapters"])
    assert lines[0] == "first op", lines
    assert len(lines[1:]) == int(software), lines
    assert all("a software adapter" in line for line in lines[1:])


def test_each_variable_without_a_meaning_is_told_once() -> None:
    lines = said(
        """
        import tensorflow as tf
        for _ in range(3):
            tf.distribute.get_strategy()
            tf.function(lambda x: x + 1.0)(tf.ones(2)).numpy()
        """,
        TF_WGPU_VISIBLE_DEVICES="0",
        TF_WGPU_FALLBAK="log",
        TF_WGPU_FALLBACK="maybe",
        TF_WGPU_JIT="off",
        TF_WGPU_DISTRIBUTE="none",
        TF_WGPU_RECURRENT="none",
        TF_WGPU_AUTOTUNE="yes",
        TF_WGPU_BARRIERS="few",
        TF_WGPU_COOPERATIVE_MATRIX="perhaps",
        TF_WGPU_DRIVER_SHIELD="no",
        TF_WGPU_PROFILE="voodoo",
        TF_WGPU_MAX_MEMORY="much",
        TF_WGPU_CACHE="/proc/nowhere",
        TF_WGPU_OPTIMIZER="everything",
        TF_WGPU_DEVICE_TYPE="TPU",
        TF_WGPU_LOG="verbose",
        WGPU_BACKEND="vulkan,metal",
    )
    for start in (
        "TF_WGPU_FALLBAK is not a variable of tensorflow-wgpu; did you mean TF_WGPU_FALLBACK?",
        "TF_WGPU_FALLBACK=maybe is ignored: the values are log and error",
        "TF_WGPU_JIT=off is ignored: the only value is error",
        "TF_WGPU_DISTRIBUTE=none is ignored: the values are on, off and collective",
        "TF_WGPU_RECURRENT=none is ignored",
        "TF_WGPU_AUTOTUNE=yes is ignored",
        "TF_WGPU_BARRIERS=few is ignored",
        "TF_WGPU_COOPERATIVE_MATRIX=perhaps is ignored",
        "TF_WGPU_DRIVER_SHIELD=no is ignored",
        "TF_WGPU_PROFILE=voodoo is ignored: the values are amd, intel,",
        "TF_WGPU_MAX_MEMORY=much: not a number of bytes",
        "TF_WGPU_CACHE=/proc/nowhere: nothing is kept there: No such file",
        'TF_WGPU_OPTIMIZER names "everything"',
        "TF_WGPU_DEVICE_TYPE=TPU: neither WGPU nor GPU",
        'TF_WGPU_LOG=verbose: "verbose" is neither a level',
        'WGPU_BACKEND="vulkan,metal": this system has no metal, only vulkan',
    ):
        assert sum(f"tensorflow-wgpu: warn: {start}" in line for line in lines) == 1, (start, lines)
    assert len(lines) == 16, lines


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TF_WGPU_VISIBLE_DEVICE", "9"),
        ("TF_WGPU_JIT", "9"),
        ("TF_WGPU_OPTIMIZER", "9"),
        ("TF_WGPU_CACHE", "/proc/nowhere"),
    ],
)
def test_the_doctor_tells_of_them_too(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    probe = _probe.run("library")
    facts = {"library": probe, "library_path": "x"}
    found = [p for p in _doctor.diagnose_library(facts) if name in p[1]]
    ((severity, what, do),) = found
    assert severity == "warning"
    assert what.startswith(name)
    assert do


def names(*folders: str) -> set[str]:
    """The names of our variables in the sources."""
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".rs", ".py", ".yml", ".sh", ".c")
    ]
    assert files
    return {
        name
        for path in files
        if path.name not in (Path(__file__).name, "settings.rs")
        for name in re.findall(r"\bTF_WGPU_[A-Z0-9_]*[A-Z0-9]\b", path.read_text(encoding="utf-8"))
    }


def test_every_variable_is_in_the_list_and_in_the_page() -> None:
    """One list of names, that of `src/settings.rs`, and one page about them."""
    listing = (ROOT / "src/settings.rs").read_text(encoding="utf-8").partition("#[cfg(test)]")[0]
    users, _, development = listing.partition("const OF_DEVELOPMENT")
    known = set(re.findall(r'"((?:TF_)?WGPU_[A-Z0-9_]*[A-Z0-9])"', users))
    page = (ROOT / "docs/ENVIRONMENT.md").read_text(encoding="utf-8")
    described = set(re.findall(r"^\| `((?:TF_)?WGPU_[A-Z0-9_]+)` \|", page, re.MULTILINE))
    # The page may have more of wgpu's own.
    assert {name for name in described ^ known if name.startswith("TF_")} == set()
    assert known <= described
    prefixes = tuple(re.findall(r'"(TF_WGPU_[A-Z0-9_]+)"', development))
    used = names("src", "python", "tests", "benches", "tools", "fuzz", "demo") - known
    assert {name for name in used if not name.startswith(prefixes)} == set()
