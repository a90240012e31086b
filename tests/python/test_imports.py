"""No circle of imports among our Python modules: each may be read once those that it names are."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Folders of modules, and the name by which the modules import each other.
FOLDERS = {
    "python/tensorflow_wgpu": "tensorflow_wgpu.",
    "tests/python": "",
    "benches": "",
}


def modules(folder: Path) -> dict[str, ast.Module]:
    """The modules of a folder and its subfolders. A package's `__init__.py` stands for all of the
    package and is no part of it.
    """
    files = [path for path in folder.rglob("*.py") if path.name != "__init__.py"]
    names = {".".join(path.relative_to(folder).with_suffix("").parts): path for path in files}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in names.items()}


def imported(name: str, module: ast.Module) -> Iterator[str]:
    """The names that a module imports anywhere: in a function or for type checkers, too."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".")[: -node.level] if node.level else []
            home = ".".join([*package, *filter(None, [node.module])])
            yield from (home, *(f"{home}.{alias.name}" for alias in node.names))


def circle(folder: dict[str, ast.Module], prefix: str) -> list[str]:
    """A circle of modules, each of which imports the one before it."""
    named = {
        name: {found.removeprefix(prefix) for found in imported(name, module)} & folder.keys()
        for name, module in folder.items()
    }
    try:
        graphlib.TopologicalSorter(named).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_import_in_one_direction(folder):
    found = modules(ROOT / folder)
    assert len(found) > 2, found
    assert circle(found, FOLDERS[folder]) == []


def test_circles_in_functions_are_found():
    texts = {
        "a": "from package.b import x",
        "b": "def f():\n    from package import c",
        "c": "if TYPE_CHECKING:\n    import package.a",
        "d": "import a",
        "e.f": "from .g import x",
        "e.g": "import json",
    }
    parsed = {name: ast.parse(text) for name, text in texts.items()}
    assert set(circle(parsed, "package.")) == {"a", "b", "c"}
    parsed["e.g"] = ast.parse("from . import f")
    parsed["c"] = ast.parse("import json")
    assert set(circle(parsed, "package.")) == {"e.f", "e.g"}
    parsed["e.g"] = ast.parse("import json")
    assert circle(parsed, "package.") == []
