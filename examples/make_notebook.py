"""Makes a notebook of a program whose cells begin with lines `# %%`.

python examples/make_notebook.py examples/language_model.py    # writes language_model.ipynb
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TEXT = "# %% [markdown]"
CODE = "# %%"


def notebook(program: str) -> dict[str, Any]:
    """The notebook of a program's text, without what comes before its first cell."""
    cells: list[tuple[str, list[str]]] = []
    for line in program.splitlines():
        if line in (TEXT, CODE):
            cells.append((line, []))
        elif cells:
            cells[-1][1].append(line)
    return {
        "cells": [cell(f"cell-{i}", *parts) for i, parts in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def cell(name: str, marker: str, lines: list[str]) -> dict[str, Any]:
    """A cell without results."""
    if marker == TEXT:
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
    source = "\n".join(lines).strip().splitlines(keepends=True)
    made: dict[str, Any] = {"id": name, "metadata": {}, "source": source}
    if marker == TEXT:
        return {"cell_type": "markdown", **made}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **made}


def main() -> None:
    """Writes the notebooks of the programs."""
    for path in map(Path, sys.argv[1:]):
        book = notebook(path.read_text(encoding="utf-8"))
        text = json.dumps(book, indent=1, ensure_ascii=False) + "\n"
        path.with_suffix(".ipynb").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
