"""The documentation: its programs run, its links lead somewhere, and the site shows every page."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support import python
from test_profiler_models import CHROMIUM, needs_chromium

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n\n)?"
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
#: What the programs of a page take for granted: their reader's model and data.
MODEL = """
import numpy as np, tensorflow as tf
keras = tf.keras
def make_model():
    return keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
y = np.zeros([64, 1], "float32")
model = make_model()
model.compile("adam", "mse")
"""
SETUP = {
    "README.md": MODEL + "a = b = tf.ones([2, 2])\n",
    "docs/DISTRIBUTE.md": MODEL
    + "dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)\n",
    # The data set would come from the network.
    "docs/FIRST-STEPS.md": """
import numpy as np, tensorflow as tf
digits = np.zeros([256, 28, 28], "uint8"), np.arange(256) % 10
tf.keras.datasets.mnist.load_data = lambda: (digits, digits)
""",
    "docs/SLOW.md": MODEL
    + "batch = tf.constant(x)\nstep = tf.function(lambda b: tf.reduce_sum(b * b))\n",
}
ENVIRONMENT = {"docs/DISTRIBUTE.md": {"TF_WGPU_VISIBLE_DEVICES": "0,0"}}


def blocks(page: str) -> list[re.Match[str]]:
    """The Python programs of a page."""
    return list(BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")))


WITH_PYTHON = [page for page in PAGES if any(not b["why"] for b in blocks(page))]


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_programs_of_a_page_run(page, tmp_path):
    """One after the other, as a reader would type them."""
    parts = [f"import os\nos.chdir({str(tmp_path)!r})\n", SETUP.get(page, "")]
    parts += [textwrap.dedent(b["code"]) for b in blocks(page) if not b["why"]]
    ran = python("\n".join(parts), **ENVIRONMENT.get(page, {}))
    assert ran.returncode == 0, ran.stderr[-4000:]


def test_few_programs_are_not_run():
    """Each with a reason; what the tests prepare belongs to a page that has programs."""
    left_out = [page for page in PAGES for b in blocks(page) if b["why"]]
    assert left_out == ["docs/DROP-IN.md", "docs/WITHOUT-PYTHON.md"]
    assert SETUP.keys() | ENVIRONMENT.keys() <= set(WITH_PYTHON)


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site of a checkout. With --quiet mkdocs would count no warnings."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", root / "tools/site/mkdocs.yml", "--site-dir", site]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    environment.pop("GITHUB_REPOSITORY", None)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, which builds only if links and anchors lead somewhere and the navigation has every
    page.
    """
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_needs_no_network(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"', text)
        loaded += re.findall(r'<link rel="stylesheet" href="([^"]+)"', text)
        assert len(loaded) > 3
        assert [source for source in loaded if "//" in source] == [], page.name


@needs_chromium
def test_the_table_of_ops_is_filtered(site):
    """By the script of the page, in a browser."""
    query = urlencode({"op": "matmul", "type": "complex64"})
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    address = f"{(site / 'OPS.html').as_uri()}?{query}"
    ran = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = re.findall(r"^\| (_?[A-Z]\w+) \|(.*)$", (ROOT / "docs/OPS.md").read_text(), re.MULTILINE)
    rows = [row for row in rows if row[0] != "Op"]
    fits = [op for op, rest in rows if "matmul" in op.lower() and "complex64" in rest]
    assert f"<output>{len(fits)} of {len(rows)} ops</output>" in ran.stdout
    shown = re.findall(r"<tr>\s*<td>(\w+)</td>", ran.stdout)
    assert shown == fits


def test_mistakes_in_pages_are_found(tmp_path):
    """A link to nowhere, an anchor that is not there, and a page that the navigation lacks."""
    for folder in ("docs", "tools/site"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "benches").mkdir()
    for page in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / page, tmp_path / page)
    shutil.copy(ROOT / "benches/RESULTS.md", tmp_path / "benches")
    with (tmp_path / "README.md").open("a", encoding="utf-8") as readme:
        readme.write("[one](docs/NOWHERE.md) [two](docs/SLOW.md#nowhere)\n")
    (tmp_path / "docs/FORGOTTEN.md").write_text("# Forgotten\n", encoding="utf-8")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    for found in ("docs/NOWHERE.md", "SLOW.md#nowhere", "FORGOTTEN.md"):
        assert found in built.stderr
