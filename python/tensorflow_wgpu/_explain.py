"""How the graph optimizer fuses a program, and why it leaves nodes alone."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorflow_wgpu import _notebook
from tensorflow_wgpu._library import device_type, library_path
from tensorflow_wgpu._warmup import kept, wait


@dataclass(frozen=True)
class Decision:
    """What became of one node of a program's graph on the device."""

    #: The node's name.
    node: str
    #: Its op, as in "_WgpuFusedElementwise".
    op: str
    #: The nodes that a fused node replaces, each as "op name".
    replaces: tuple[str, ...]
    #: Why another node is not part of a fused one; empty for fused nodes.
    reason: str
    #: The neighbour with which a pass did not fuse it, if the reason lies between the two.
    neighbour: str

    def __str__(self) -> str:
        what = f"{self.op} {self.node}"
        if self.replaces:
            return f"{what} replaces {', '.join(self.replaces)}"
        beside = f" ({self.neighbour})" if self.neighbour else ""
        return f"{what}: {self.reason}{beside}" if self.reason else what


class Explanation(tuple):  # of Decision
    """What `explain` returns: the decisions about each node, fused nodes first. Notebooks show a
    table. `save` writes the picture of the optimized graph.
    """

    #: The picture of the largest optimized graph, as SVG.
    picture: str

    @property
    def fused(self) -> tuple[Decision, ...]:
        """The fused nodes."""
        return tuple(decision for decision in self if not decision.reason)

    @property
    def left(self) -> tuple[Decision, ...]:
        """The nodes that are not part of a fused node."""
        return tuple(decision for decision in self if decision.reason)

    def save(self, path: str | Path) -> None:
        """Writes the picture of the optimized graph to a file of SVG."""
        Path(path).write_text(self.picture, encoding="utf-8")

    def __repr__(self) -> str:
        return "\n".join(str(decision) for decision in self) or "no node runs on WGPU"

    def _repr_html_(self) -> str:
        rows = [(d.node, d.op, ", ".join(d.replaces) or d.reason, d.neighbour) for d in self]
        headings = ("node", "op", "replaces, or is not fused because", "neighbour")
        title = f"{len(self.fused)} fused nodes, {len(self.left)} others"
        return _notebook.table(title, headings, rows)


def explain(fn_or_model: Callable, *inputs: Any, **keywords: Any) -> Explanation:
    """Traces and runs a program once, and tells which nodes of its graph the optimizer fused into
    what, and why it left the others.

    `fn_or_model` is a `tf.function`, a Keras model (its call), or any other callable of TensorFlow
    ops, which is traced as the body of a `tf.function`. Its variables get their values back
    afterwards. For the step of a training, give a function that computes it.

    Raises what the program raises, and RuntimeError where TensorFlow sees no WGPU device.
    """
    import tensorflow as tf

    if not tf.config.list_logical_devices(device_type()):
        raise RuntimeError("TensorFlow sees no WGPU device; `python -m tensorflow_wgpu` says why")
    # A function that ran before has its graph already.
    program = getattr(fn_or_model, "python_function", None) or (
        lambda *args, **named: fn_or_model(*args, **named)
    )
    function = tf.function(program, autograph=getattr(fn_or_model, "_autograph", True))
    variables = function.get_concrete_function(*inputs, **keywords).variables
    with tempfile.TemporaryDirectory() as folder, kept(variables):
        with _dumped(folder):
            wait(function(*inputs, **keywords))
        return _read(Path(folder))


@contextlib.contextmanager
def _dumped(folder: str) -> Iterator[None]:
    """Lets the optimizer write what it decides about graphs."""
    dump = ctypes.CDLL(str(library_path())).tensorflow_wgpu_dump_graphs
    dump.argtypes, dump.restype = [ctypes.c_char_p], None
    dump(folder.encode())
    try:
        yield
    finally:
        dump(None)


def _read(folder: Path) -> Explanation:
    """The explanation in a folder of the optimizer's files."""
    found: dict[str, Decision] = {}
    table = folder / "fusions.tsv"
    if table.exists():
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                replaces = tuple(filter(None, row["replaces"].split("; ")))
                # TensorFlow optimizes a graph twice, and some nodes keep what the first run knew.
                earlier = found.get(row["node"])
                if earlier and not replaces:
                    replaces = earlier.replaces
                found[row["node"]] = Decision(
                    row["node"], row["op"], replaces, row["reason"], row["neighbour"]
                )
    explanation = Explanation(sorted(found.values(), key=lambda decision: bool(decision.reason)))
    pictures = [path.read_text(encoding="utf-8") for path in folder.glob("graphs/*_after.svg")]
    explanation.picture = max(pictures, key=len, default="")
    return explanation
