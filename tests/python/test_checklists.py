"""The lists in docs/RELEASING.md name every place that a new TensorFlow or a new wgpu touches."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/RELEASING.md").read_text(encoding="utf-8")
#: Texts about the past, measurements, and pages that tools write.
LEFT_OUT = ("CHANGELOG.md", "benches", "docs/PLATFORMS.md", "docs/RELEASING.md", "shaders")


def section(title: str) -> str:
    _, _, text = PAGE.partition(f"## {title}\n")
    return text.partition("\n## ")[0]


def named(text: str) -> list[str]:
    """The files and folders that a list names, each by its path from the root."""
    names = re.findall(r"`([\w./-]+)`", text)
    return [name for name in names if (ROOT / name).exists()]


def found(pattern: str, *paths: str) -> list[str]:
    """The files of the repository with a match."""
    leave = [f":!{path}" for path in LEFT_OUT]
    command = ["git", "grep", "-lIE", pattern, "--", *paths, *leave]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()


def missing(files: list[str], names: list[str]) -> list[str]:
    folders = tuple(name for name in names if name.endswith("/"))
    return [file for file in files if file not in names and not file.startswith(folders)]


def test_a_new_tensorflow_has_all_of_its_places():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    versions = re.search(r"^VERSIONS \?= (.*)$", makefile, re.M).group(1).split()
    newest = ".".join(versions[-1].split(".")[:2])
    text = section("A new minor of TensorFlow")
    assert f"'\\b{newest.replace('.', chr(92) + '.')}\\b'" in text, "the command's version"
    files = found(rf"\b{re.escape(newest)}(\.|rc|\b)")
    assert len(files) > 10, files
    assert missing(files, named(text)) == []


def test_a_new_wgpu_has_all_of_its_places():
    files = found(r"(wgpu|wgpu_hal|naga)::", "*.rs")
    # Our own crate is `tensorflow_wgpu::`.
    files = [
        file
        for file in files
        if re.search(r"(?<!\w)(wgpu|wgpu_hal|naga)::", (ROOT / file).read_text(encoding="utf-8"))
    ]
    assert len(files) > 40, files
    assert missing(files, named(section("A new major of wgpu"))) == []


def test_places_that_no_longer_exist_are_found():
    for title in ("A new minor of TensorFlow", "A new major of wgpu"):
        names = [n for n in re.findall(r"`([\w./-]+)`", section(title)) if "/" in n]
        assert [name for name in names if not (ROOT / name).exists()] == []
