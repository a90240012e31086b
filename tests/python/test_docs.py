"""The documentation: its programs run, its links lead somewhere, and the site shows every page."""

import os
import re
import runpy
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
#: The other pages of the site, which are in the root folder.
AT_ROOT = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n\n)?"
    r"^(?P<indent> *)```python\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
#: The names that the programs of a page assume: their reader's model and data.
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
    "README.md": MODEL,
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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("page", WITH_PYTHON)
def test_the_programs_of_a_page_run(page, tmp_path):
    """One after the other, as a reader would type them."""
    parts = [f"import os\nos.chdir({str(tmp_path)!r})\n", SETUP.get(page, "")]
    parts += [textwrap.dedent(b["code"]) for b in blocks(page) if not b["why"]]
    ran = python("\n".join(parts), **ENVIRONMENT.get(page, {}))
    assert ran.returncode == 0, ran.stderr[-4000:]


def test_few_programs_are_not_run():
    """Each has a reason; the preparations of the tests belong to pages that have programs."""
    left_out = [page for page in PAGES for b in blocks(page) if b["why"]]
    assert left_out == ["docs/DROP-IN.md", "docs/LANGUAGE-MODELS.md", "docs/WITHOUT-PYTHON.md"]
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
    """The site. It builds only if links and anchors have targets and the navigation has every
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


def rendered(address: str) -> str:
    """A page after its scripts have run, in a browser."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    ran = subprocess.run(
        [CHROMIUM, *options, "--virtual-time-budget=8000", "--dump-dom", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ran.stdout


@needs_chromium
def test_the_table_of_ops_is_filtered(site):
    """By the script of the page."""
    query = urlencode({"op": "matmul", "type": "complex64"})
    page = rendered(f"{(site / 'OPS.html').as_uri()}?{query}")
    rows = re.findall(r"^\| (_?[A-Z]\w+) \|(.*)$", (ROOT / "docs/OPS.md").read_text(), re.MULTILINE)
    rows = [row for row in rows if row[0] != "Op"]
    fits = [op for op, rest in rows if "matmul" in op.lower() and "complex64" in rest]
    assert f"<output>{len(fits)} of {len(rows)} ops</output>" in page
    shown = re.findall(r'<tr>\s*<td data-label="Op">(\w+)</td>', page)
    assert shown == fits


@needs_chromium
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("out of memory", "FAQ.html#out-of-memory"),
        ("nan", "WRONG.html#differences-that-are-normal"),
    ],
)
def test_search_finds_the_answer_first(site, words, page):
    """A result is a page, and below it the sections that have the words."""
    found = rendered(f"{(site / 'index.html').as_uri()}?{urlencode({'q': words})}")
    links = re.findall(r'href="([^"]+)" class="md-search-result__link"', found)
    sections = [re.sub(r".*/|\?[^#]*", "", link) for link in links]
    assert page in sections[:3]


@needs_chromium
def test_pages_are_as_wide_as_screens(site):
    """On phones and laptops nothing is cut off on the right."""
    sizes = [(page, width) for page in ("index", "OPS", "INSTALL") for width in (390, 1366)]
    frames = "".join(
        f'<iframe src="{page}.html" style="width: {width}px; height: 900px"></iframe>'
        for page, width in sizes
    )
    # Tables with many columns scroll in their own frame; the table of ops must not.
    script = """
        const over = (page) => Math.max(
          ...[page.documentElement, ...page.querySelectorAll(".ops-table .md-typeset__scrollwrap")]
            .map((box) => box.scrollWidth - box.clientWidth));
        addEventListener("load", () => setTimeout(() => {
          const frames = [...document.querySelectorAll("iframe")];
          document.body.dataset.over = frames.map((f) => over(f.contentDocument)).join(" ");
        }, 3000));
    """
    (site / "frames.html").write_text(f"{frames}<script>{script}</script>", encoding="utf-8")
    page = rendered((site / "frames.html").as_uri())
    over = re.search(r'data-over="([^"]*)"', page)[1].split()
    assert dict(zip(sizes, over)) == dict.fromkeys(sizes, "0")


@needs_chromium
def test_a_phone_gives_a_text_beside_a_name_the_whole_width(site):
    """The second of two columns was as wide as ten letters."""
    frame = '<iframe src="ENVIRONMENT.html" style="width: 390px; height: 900px"></iframe>'
    script = """
        addEventListener("load", () => setTimeout(() => {
          const page = document.querySelector("iframe").contentDocument;
          const texts = [...page.querySelectorAll("article td:last-child")];
          document.body.dataset.narrowest = Math.min(...texts.map((text) => text.clientWidth));
        }, 3000));
    """
    (site / "frame.html").write_text(f"{frame}<script>{script}</script>", encoding="utf-8")
    page = rendered((site / "frame.html").as_uri())
    assert int(re.search(r'data-narrowest="(\d+)"', page)[1]) > 300


def test_the_first_picture_is_up_to_date():
    """It names versions and a number of ops."""
    module = runpy.run_path(str(ROOT / "docs/make_overview_picture.py"))
    assert module["picture"]() == module["PICTURE"].read_text(encoding="utf-8"), (
        "run `python docs/make_overview_picture.py`"
    )


def test_mistakes_in_pages_are_found(tmp_path):
    """A link without a target, a missing anchor, and a page that the navigation lacks."""
    for folder in ("docs", "tools/site"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "benches").mkdir()
    for page in ("README.md", *AT_ROOT):
        shutil.copy(ROOT / page, tmp_path / page)
    shutil.copy(ROOT / "benches/RESULTS.md", tmp_path / "benches")
    with (tmp_path / "README.md").open("a", encoding="utf-8") as readme:
        readme.write("[one](docs/NOWHERE.md) [two](docs/SLOW.md#nowhere)\n")
    (tmp_path / "docs/FORGOTTEN.md").write_text("# Forgotten\n", encoding="utf-8")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    for found in ("docs/NOWHERE.md", "SLOW.md#nowhere", "FORGOTTEN.md"):
        assert found in built.stderr


def test_the_image_file_is_sound():
    """Without Docker: its form, the files that it copies, and what it installs."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    steps = [line.split(" ", 1) for line in lines if line]
    stages = [value for word, value in steps if word == "FROM"]
    assert {word for word, _ in steps} <= {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "CMD"}
    # Both have a tag and one Debian, so that the wheel's glibc is there.
    assert [
        bool(re.fullmatch(r"[\w-]+:[\w.-]+-bookworm( AS \w+)?", stage)) for stage in stages
    ] == [
        True,
        True,
    ]
    for command in (value for word, value in steps if word == "RUN"):
        shell = re.sub(r"^--mount=\S+ ", "", command)
        if os.name == "posix":
            subprocess.run(["sh", "-n", "-c", shell], check=True)
        if "apt-get install" in shell:
            assert "--no-install-recommends" in shell
            assert shell.endswith("&& rm -rf /var/lib/apt/lists/*")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = re.search(r"'(tensorflow[^']+)'", text)[1]
    assert f'"{versions}; sys_platform != ' in project
    guide = (ROOT / "docs/INSTALL.md").read_text(encoding="utf-8")
    for package in ("mesa-vulkan-drivers", "libvulkan1"):
        assert package in text
        assert package in guide


def test_an_image_is_built_from_everything_that_a_wheel_needs():
    """Files that hatch_build.py and cargo read are not in .dockerignore."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in ignored if line and not line.startswith("#")]
    assert patterns
    needed = ["Cargo.toml", "Cargo.lock", "build.rs", "pyproject.toml", "hatch_build.py"]
    needed += ["README.md", "proto", "python", "shaders", "src", "examples", "benches", "tests"]
    assert [name for name in needed if not (ROOT / name).exists()] == []
    assert [name for name in needed for pattern in patterns if Path(name).match(pattern)] == []
