"""The package's interface for programs and for type checkers, and its page."""

from __future__ import annotations

import importlib.metadata
import inspect
import re
import runpy
from pathlib import Path

import pytest
import tensorflow_wgpu

ROOT = Path(__file__).parents[2]
PUBLIC = [name for name in tensorflow_wgpu.__all__ if name != "__version__"]


def test_the_page_is_that_of_the_sources():
    module = runpy.run_path(str(ROOT / "docs/make_api_page.py"))
    page = module["PAGE"].read_text(encoding="utf-8")
    assert module["page"]() == page, "docs/API.md is out of date: run `make docs`"
    headings = re.findall(r"^## (?:class )?`(\w+)`", page, re.MULTILINE)
    assert sorted(headings) == sorted(tensorflow_wgpu.__all__)


def test_checkers_of_types_see_the_package():
    files = [str(file) for file in importlib.metadata.files("tensorflow-wgpu") or []]
    assert "tensorflow_wgpu/py.typed" in files
    classifiers = importlib.metadata.metadata("tensorflow-wgpu").get_all("Classifier")
    assert "Typing :: Typed" in classifiers
    for system in ("POSIX :: Linux", "Microsoft :: Windows", "MacOS"):
        assert f"Operating System :: {system}" in classifiers


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_types_and_a_docstring(name: str):
    thing = getattr(tensorflow_wgpu, name)
    assert inspect.getdoc(thing)
    own = (
        [m for key, m in vars(thing).items() if not key.startswith("_")]
        if isinstance(thing, type)
        else [thing]
    )
    functions = [m.fget if isinstance(m, property) else m for m in own]
    for function in filter(inspect.isfunction, functions):
        found = inspect.signature(function)
        assert found.return_annotation is not inspect.Signature.empty, function
        for parameter in list(found.parameters.values())[isinstance(thing, type) :]:
            assert parameter.annotation is not inspect.Parameter.empty, (function, parameter)


def test_the_version_is_an_attribute_and_others_are_none():
    assert tensorflow_wgpu.__version__ == importlib.metadata.version("tensorflow-wgpu")
    with pytest.raises(AttributeError, match="no attribute 'fallback'"):
        _ = tensorflow_wgpu.fallback
