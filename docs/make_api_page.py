"""Writes docs/API.md from the sources of the Python package: signatures, and what their comments
say. A test compares them.

    python docs/make_api_page.py

Reads text alone: neither TensorFlow nor the package need be installed.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "tensorflow_wgpu"
PAGE = Path(__file__).with_name("API.md")
#: The classes of a public class's attributes, and the module that defines them.
PARTS = {"Profile": ("_recording", ("DeviceProfile", "Row"))}
HEAD = """\
# Python API

`import tensorflow` alone makes the devices. `import tensorflow_wgpu` is for looking at them: what
ran where ([First steps](FIRST-STEPS.md)), how long it took ([Why is my model slow?](SLOW.md)), and
what the [graph optimizer](OPTIMIZER.md) made of it. The package has types for checkers
(`py.typed`). `make docs` writes this page from its sources.
"""
WIDTH = 100


def page() -> str:
    """The whole page."""
    start = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module.rpartition(".")[2]
        for node in start.body
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tensorflow_wgpu.")
        for alias in node.names
    }
    functions, classes = [], []
    for name in sorted(homes):
        home = Module(homes[name])
        kind = functions if isinstance(home.definitions[name], ast.FunctionDef) else classes
        kind.append("\n".join(home.section(name, "##")))
        module, parts = PARTS.get(name, ("", ()))
        kind += ["\n".join(Module(module).section(part, "###")) for part in parts]
    version = "## `__version__`\n\nThe version of the package, as in `0.1.0a1`.\n"
    return "\n".join([HEAD, *functions, *classes, version])


class Module:
    """A file of the package."""

    def __init__(self, name: str) -> None:
        text = (PACKAGE / f"{name}.py").read_text(encoding="utf-8")
        self.lines = text.splitlines()
        self.definitions: dict[str, ast.FunctionDef | ast.ClassDef] = {
            node.name: node
            for node in ast.parse(text).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }

    def section(self, name: str, heading: str) -> Iterator[str]:
        """A function, or a class with its attributes and methods."""
        node = self.definitions[name]
        if isinstance(node, ast.FunctionDef):
            yield f"{heading} `{name}`\n\n```text\n{signature(node)}\n```\n"
            yield f"{described(node)}\n"
            return
        bases = [ast.unparse(base) for base in node.bases]
        of = f" ({bases[0]})" if bases else ""
        yield f"{heading} class `{name}`{of}\n\n{described(node)}\n"
        attributes = list(self.attributes(node))
        if attributes:
            yield "| Attribute | Type | Meaning |\n|---|---|---|"
            yield from (f"| `{a}` | `{kind}` | {text} |" for a, kind, text in attributes)
            yield ""
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                if any(ast.unparse(d) == "property" for d in method.decorator_list):
                    yield f"`{method.name}`: {described(method)}\n"
                else:
                    yield f"```text\n{signature(method)}\n```\n\n{described(method)}\n"

    def attributes(self, node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
        """Names, types and comments of the fields that have a comment `#:`, those of `__init__`
        among them.
        """
        for part in ast.walk(node):
            if not isinstance(part, ast.AnnAssign):
                continue
            name = ast.unparse(part.target).removeprefix("self.")
            if comment := self.comment(part.lineno - 1):
                yield name, ast.unparse(part.annotation).replace("|", "\\|"), comment

    def comment(self, line: int) -> str:
        """The comment `#:` that ends above a line, numbered from 0; comments that follow it mean
        the next lines too.
        """
        found: list[str] = []
        while line > 0 and self.lines[line - 1].strip().startswith("#"):
            line -= 1
            found.insert(0, self.lines[line].strip().lstrip("#:").strip())
        is_marked = self.lines[line].strip().startswith("#:")
        return " ".join(found).replace("|", "\\|") if is_marked else ""


def signature(node: ast.FunctionDef) -> str:
    """How it is called."""
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{node.name}({arguments}){result}"
    return line if len(line) <= WIDTH - 10 else line.replace(", ", ",\n    ")


def described(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Its docstring, which is Markdown."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    if not text:
        raise SystemExit(f"{node.name} has no docstring")
    return text


def main() -> None:
    """Writes it."""
    PAGE.write_text(page(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
