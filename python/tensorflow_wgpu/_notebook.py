"""Tables and pictures that notebooks show in place of text.

A notebook asks an object for `_repr_html_` or `_repr_png_`. This module knows nothing of
TensorFlow, and never imports IPython: in a notebook it is imported already.
"""

from __future__ import annotations

import html
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: What a number begins with; a cell may be empty, too.
NUMBERS = ("", *"-0123456789")


def table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    notes: Iterable[str] = (),
) -> str:
    """A table of text with notes below. Columns of numbers are aligned to the right."""
    cells = [[str(value) for value in row] for row in rows]
    sides = [
        "right" if all(text[:1] in NUMBERS for text in column) else "left"
        for column in zip(*(cells or [headings]))
    ]
    lines = ["<table>"]
    if title:
        lines.append(f"<caption>{html.escape(title)}</caption>")
    lines.append(f"<thead><tr>{_cells('th', headings, sides)}</tr></thead><tbody>")
    lines += [f"<tr>{_cells('td', row, sides)}</tr>" for row in cells]
    lines.append("</tbody></table>")
    lines += [f"<div>{html.escape(note)}</div>" for note in notes]
    return "\n".join(lines)


def _cells(tag: str, texts: Sequence[str], sides: Sequence[str]) -> str:
    return "".join(
        f'<{tag} style="text-align:{side}">{html.escape(text)}</{tag}>'
        for text, side in zip(texts, sides)
    )


def preformatted(text: str) -> str:
    """Text, shown as it is."""
    return f"<pre>{html.escape(text)}</pre>"


class Counters(dict):  # of dict[str, int], by device
    """What `statistics` returns: a dictionary that notebooks show as a table, with a column for
    each device.
    """

    def _repr_html_(self) -> str:
        names = dict.fromkeys(name for counts in self.values() for name in counts)
        rows = [
            (name.replace("_", " "), *(f"{counts.get(name, 0):,}" for counts in self.values()))
            for name in names
        ]
        return table("", ("", *self), rows)


class Report(dict):  # of dict[str, Any]
    """What `report` returns: a dictionary that notebooks show as a table of adapters."""

    def _repr_html_(self) -> str:
        headings = ("adapter", "device", "type", "backend", "driver", "memory", "note")
        rows = [
            (
                adapter["name"],
                adapter["device"] or "",
                adapter["type"],
                adapter["backend"],
                " ".join(filter(None, (adapter["driver"], adapter["driver_info"]))),
                _gib(adapter["memory"]),
                adapter["problem"] or adapter["rejected"] or "",
            )
            for adapter in self["adapters"]
        ]
        variables = [f"{name}={value}" for name, value in self["environment"].items()]
        notes = [
            *([f"There is no device: {self['problem']}"] if self["problem"] else []),
            *self["warnings"],
            *([f"Environment: {' '.join(variables)}"] if variables else []),
            f"{len(self['ops'])} ops have kernels.",
        ]
        return table(f"tensorflow-wgpu {self['version']}", headings, rows, notes)


def _gib(memory: Mapping[str, Any] | None) -> str:
    return f"{memory['total'] / (1 << 30):.1f} GiB" if memory else ""


class Picture:
    """A figure of matplotlib that a notebook shows."""

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def _repr_png_(self) -> bytes:
        bytes_of = io.BytesIO()
        self.figure.savefig(bytes_of, format="png", dpi=110)
        return bytes_of.getvalue()


def show(figure: Any, path: str | Path | None) -> None:
    """Writes a figure to a file, or shows it in the notebook that runs this.

    Raises ValueError if there is neither a path nor a notebook.
    """
    if path is not None:
        figure.savefig(path, dpi=110)
        return
    display = _display()
    if display is None:
        raise ValueError("no notebook runs this; give plot() the path of a file")
    display(Picture(figure))


def _display() -> Any:
    """IPython's function that shows an object, if a notebook runs this."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    # IPython in a terminal has no kernel, and shows no pictures.
    if not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display
