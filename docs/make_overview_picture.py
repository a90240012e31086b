"""Draws the first picture of README.md, what lies between a program and a GPU:
docs/pictures/overview.svg.

python docs/make_overview_picture.py

The versions come from pyproject.toml and the number of ops from docs/OPS.md, so that a test can
tell a picture that is out of date.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PICTURE = DOCS / "pictures/overview.svg"
WIDTH, MARGIN, GAP = 860, 24, 12
STYLE = """text { font-family: Helvetica, Arial, sans-serif; text-anchor: middle; fill: #1f2937 }
.title { font-size: 17px; font-weight: bold }
.text { font-size: 14px }
rect { rx: 8px }
.theirs { fill: #f3f4f6; stroke: #9ca3af }
.ours { fill: #dbeafe; stroke: #3b82f6; stroke-width: 2 }
.driver { fill: #fef9c3; stroke: #d6c98a }
.gpu { fill: #dcfce7; stroke: #16a34a }
.way { stroke: #6b7280; stroke-width: 2 }"""
#: Each graphics API with the systems where it is used, and the GPUs below it.
APIS = (
    ("Vulkan", "Linux, Windows", "AMD · Intel · NVIDIA"),
    ("DX12", "Windows", "AMD · Intel · NVIDIA"),
    ("Metal", "macOS", "Apple"),
)


def versions() -> str:
    """The TensorFlow versions that the package takes, as `2.16 to 2.22`."""
    project = (DOCS.parent / "pyproject.toml").read_text(encoding="utf-8")
    oldest, above = re.search(r'"tensorflow>=2\.(\d+),<2\.(\d+);', project).groups()
    return f"2.{oldest} to 2.{int(above) - 1}"


def ops() -> str:
    """How many ops have kernels."""
    return re.search(r"(\d+) ops have kernels", (DOCS / "OPS.md").read_text(encoding="utf-8"))[1]


def box(kind: str, x: float, y: float, width: float, title: str, text: str) -> list[str]:
    """A box with two lines."""
    middle = x + width / 2
    return [
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="60"/>',
        f'<text class="title" x="{middle:g}" y="{y + 26:g}">{title}</text>',
        f'<text class="text" x="{middle:g}" y="{y + 47:g}">{text}</text>',
    ]


def way(x: float, y: float) -> str:
    """A line from a box to the next one below."""
    return f'<line class="way" x1="{x:g}" y1="{y:g}" x2="{x:g}" y2="{y + GAP:g}"/>'


def picture() -> str:
    """The picture as SVG, on a ground of its own, for pages in dark colours."""
    inner = WIDTH - 2 * MARGIN
    rows = (
        ("theirs", "Your program, unchanged", "Keras · tf.function · GradientTape · SavedModel"),
        ("theirs", f"TensorFlow {versions()}, from PyPI", "loads the plug-in by itself"),
        ("ours", "tensorflow-wgpu", f"one library: a graph optimizer, and kernels for {ops()} ops"),
    )
    parts, y = [], MARGIN
    for kind, title, text in rows:
        parts += box(kind, MARGIN, y, inner, title, text)
        y += 60
        if kind != "ours":
            parts.append(way(WIDTH / 2, y))
        y += GAP
    column = (inner - 2 * GAP) / 3
    for index, (api, systems, gpus) in enumerate(APIS):
        x = MARGIN + index * (column + GAP)
        parts += [way(x + column / 2, y - GAP), way(x + column / 2, y + 60)]
        parts += box("driver", x, y, column, api, systems)
        parts += box("gpu", x, y + 60 + GAP, column, "GPU", gpus)
    height = y + 120 + GAP + MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">'
    ground = '<rect x="0" y="0" width="100%" height="100%" fill="white"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", ground, *parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
