"""The output in notebooks, and the example notebooks, whose cells run in order."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from tensorflow_wgpu import _notebook
from tensorflow_wgpu._library import first_device

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = [EXAMPLES / "notebook.ipynb", EXAMPLES / "language_model.ipynb"]
PNG = b"\x89PNG"


def rows_of(html: str) -> list[list[str]]:
    """The cells of a table, which must be well-formed."""
    assert html.count("<table>") == html.count("</table>") == 1
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_statistics_are_a_table_and_a_dictionary():
    with tf.device(first_device()):
        tf.ones([3]).numpy()
    found = tensorflow_wgpu.statistics()
    heading, *rows = rows_of(found._repr_html_())
    assert heading == ["", *found]
    assert [row[0].replace(" ", "_") for row in rows] == list(found[first_device()])
    cells = [int(row[1].replace(",", "")) for row in rows]
    assert cells == list(found[first_device()].values())
    assert json.loads(json.dumps(found)) == found


def test_the_report_is_a_table_of_adapters():
    found = tensorflow_wgpu.report()
    html = found._repr_html_()
    heading, *rows = rows_of(html)
    assert heading[:2] == ["adapter", "device"]
    assert [row[1] for row in rows] == [a["device"] or "" for a in found["adapters"]]
    assert f"tensorflow-wgpu {found['version']}" in html
    assert f"{len(found['ops'])} ops" in html
    hidden = _notebook.Report({**found, "problem": "a < b", "warnings": ["x & y"]})
    assert "no device: a &lt; b" in hidden._repr_html_()
    assert "x &amp; y" in hidden._repr_html_()


def test_fallbacks_are_a_table_or_say_that_there_are_none():
    none = tensorflow_wgpu.fallbacks(lambda: tf.ones([2]) + 1.0).floating
    assert repr(none) == "every op runs on WGPU"
    assert none._repr_html_() == "<pre>every op runs on WGPU</pre>"
    found = tensorflow_wgpu.fallbacks(lambda: tf.strings.as_string(tf.ones([2])))
    rows = rows_of(found._repr_html_())
    assert rows[0] == ["op", "types", "count", "as", "why"]
    assert rows[1][:3] == ["AsString", "T=float32", "1"]
    assert repr(found) == str(found)


@pytest.fixture(scope="module")
def profile() -> tensorflow_wgpu.Profile:
    """The profile of one product."""
    x = tf.ones([64, 64])
    with tensorflow_wgpu.profile() as found:
        tf.matmul(x, x).numpy()
    return found


def test_a_profile_is_a_table(profile: tensorflow_wgpu.Profile):
    rows = rows_of(profile._repr_html_())
    assert rows[0] == ["op", "count", "ms", "share", "MB", "GB/s", "GFLOP/s", "of peak"]
    assert any(row[0].startswith("MatMul") for row in rows)
    assert repr(profile) == str(profile)
    assert repr(tensorflow_wgpu.profile()) == "nothing is recorded yet"
    assert "nothing is recorded yet" in tensorflow_wgpu.profile()._repr_html_()


def notebook(monkeypatch: pytest.MonkeyPatch, **shell: Any) -> list[Any]:
    """Simulates IPython with a shell; returns the list of displayed objects."""
    shown: list[Any] = []
    ipython = types.ModuleType("IPython")
    ipython.version_info = (9, 0)  # matplotlib asks
    ipython.get_ipython = lambda: types.SimpleNamespace(**shell)
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = shown.append
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_a_plot_shows_its_figure(profile: tensorflow_wgpu.Profile, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="give plot\\(\\) the path of a file"):
        profile.plot()
    with monkeypatch.context() as terminal:
        assert notebook(terminal) == []
        with pytest.raises(ValueError, match="no notebook runs this"):
            profile.plot()
    shown = notebook(monkeypatch, kernel=object())
    profile.plot()
    (picture,) = shown
    assert picture._repr_png_().startswith(PNG)
    profile.plot(tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").read_bytes().startswith(PNG)
    assert len(shown) == 1


def cells(path: Path, kind: str) -> list[str]:
    """The sources of a notebook's cells."""
    return [
        "".join(cell["source"])
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == kind
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_examples_have_the_form_of_notebooks(path: Path):
    book = json.loads(path.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in book["cells"]]
    assert len(set(names)) == len(names)
    for cell in book["cells"]:
        assert isinstance(cell["metadata"], dict)
        if cell["cell_type"] == "code":
            # It is committed without results.
            assert (cell["execution_count"], cell["outputs"]) == (None, [])
    assert len(cells(path, "markdown")) >= len(cells(path, "code")) / 2, "each step is explained"


def run(path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[dict[str, Any], list]:
    """Runs a notebook in a folder: the last expression of a cell is shown. Returns its variables
    and what it showed.
    """
    shown = notebook(monkeypatch, kernel=object())
    monkeypatch.chdir(folder)
    space: dict[str, Any] = {"__name__": "__main__"}
    soft = tf.config.get_soft_device_placement()
    try:
        for source in cells(path, "code"):
            tree = ast.parse(source)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, str(path), "exec"), space)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), str(path), "eval"), space)
                if value is not None:
                    shown.append(value)
    finally:
        tf.config.set_soft_device_placement(soft)
    return space, shown


def test_the_first_example_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    space, shown = run(NOTEBOOKS[0], monkeypatch, tmp_path)
    html = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(html) >= 4, "the report, the fallbacks, the statistics, a profile"
    assert sum(hasattr(value, "_repr_png_") for value in shown) == 1, "the roofline"
    losses = space["history"].history["loss"]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


def test_the_language_model_is_the_program_of_the_same_name():
    spec = importlib.util.spec_from_file_location("made", EXAMPLES / "make_notebook.py")
    assert spec is not None
    assert spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    program = (EXAMPLES / "language_model.py").read_text(encoding="utf-8")
    book = json.loads(NOTEBOOKS[1].read_text(encoding="utf-8"))
    assert book == maker.notebook(program), "examples/make_notebook.py makes it anew"


@pytest.mark.nightly
def test_the_language_model_learns_and_generates(monkeypatch: pytest.MonkeyPatch):
    space, shown = run(NOTEBOOKS[1], monkeypatch, EXAMPLES)
    for losses in (space["sonnet_losses"], space["jabberwocky_losses"]):
        assert np.isfinite(losses).all()
        assert losses[-1] < losses[0] - 0.5, losses
    assert len(space["generated"]) == len("And the slithy ") + 60
    slots = sum(int(np.prod(v.shape)) for v in space["model"].optimizer.variables)
    assert slots < 2 * space["trainable"] + 8, "the optimizer has state of the adapters alone"
    assert space["trainable"] < space["model"].count_params() / 4
    assert hasattr(shown[-1], "_repr_html_"), "the statistics"
