"""Hooks of mkdocs: pages of the repository outside of docs/, and links between all pages.

Texts are written for GitHub, where a link is a path relative to the file that holds it. On the site
the pages of docs/ and those of the root lie in one folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
#: Pages outside of docs/. README.md is the first page.
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benches/RESULTS.md",
)
#: The weight of a page in a search; others have 1. Answers for users come before internals.
BOOST = {
    "FAQ.md": 4,
    "BROKEN.md": 2,
    "WRONG.md": 2,
    "SLOW.md": 2,
    "INSTALL.md": 2,
    "DEVICES.md": 2,
    "CHANGELOG.md": 0.3,
    "DECISIONS.md": 0.3,
    "OPTIMIZER.md": 0.3,
    "benches/RESULTS.md": 0.3,
}
#: The landing page: its template has the title, and cards in front of its text.
HOME = "README.md"
#: A page with one wide table, which also takes the space of the list of headings.
WIDE = "OPS.md"
#: Files in docs/ that are neither pages nor their pictures.
NO_PAGES = ("*.py",)
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"(?P<text>\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets the repository's address if GitHub's workflows provide it."""
    if repository := os.environ.get("GITHUB_REPOSITORY"):
        config.repo_url = f"https://github.com/{repository}"
        config.repo_name = repository
        config.edit_uri = None
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages of the root, and the site's own scripts and styles."""
    for pattern in NO_PAGES:
        for file in [f for f in files if Path(f.src_uri).match(pattern)]:
            files.remove(file)
    own = [(page, ROOT / page) for page in PAGES]
    own += [(f"assets/{path.name}", path) for path in sorted((HERE / "assets").iterdir())]
    for uri, path in own:
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the links of a page to files of the repository into links of the site."""
    uri = page.file.src_uri
    if uri in BOOST:
        page.meta["search"] = {"boost": BOOST[uri]}
    if uri == WIDE:
        page.meta["hide"] = ["toc"]
    if uri == HOME:
        page.meta |= {"template": "home.html", "hide": ["navigation", "toc"]}
        markdown = re.sub(r"\A# .*\n", "", markdown)
    folder = Path(page.file.abs_src_path).resolve().parent
    pages = {Path(f.abs_src_path).resolve(): f.src_uri for f in files if f.abs_src_path}
    start = os.path.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        text, path, anchor = match["text"], match["path"], match["anchor"] or ""
        if "://" in path or path.startswith("mailto:"):
            return match[0]
        target = (folder / path).resolve()
        if target in pages:
            uri = Path(os.path.relpath(pages[target], start or ".")).as_posix()
            return f"{text}({uri}{anchor})"
        if not target.exists() or ROOT not in target.parents:
            return match[0]  # mkdocs reports it.
        return outside(text, target.relative_to(ROOT).as_posix(), config.repo_url)

    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [LINK.sub(moved, markdown[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, LINK.sub(moved, markdown[at:])])


def outside(text: str, path: str, repository: str | None) -> str:
    """A link to a file that is no page: to the repository, or only the text of the link."""
    if not repository:
        return text[1:-1]
    if path.startswith(".github/ISSUE_TEMPLATE/"):
        return f"{text}({repository}/issues/new?template={os.path.basename(path)})"
    return f"{text}({repository}/blob/main/{path})"
