"""How the graph optimizer fuses a program, and why it leaves nodes alone."""

from __future__ import annotations

import contextlib
import csv
import ctypes
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorflow_wgpu import _notebook
from tensorflow_wgpu._library import device_type, library_path
from tensorflow_wgpu._warmup import kept, wait

#: Columns of the text of an explanation.
WIDTH = 100


@dataclass(frozen=True)
class Decision:
    """What became of one node of a program's graph on the device."""

    #: The node's name.
    node: str
    #: Its op, as in "_WgpuFusedElementwise".
    op: str
    #: The nodes that a fused node replaces, each as its op and its name: "MatMul model/MatMul".
    replaces: tuple[str, ...]
    #: Why another node is not part of a fused one; empty for fused nodes.
    reason: str
    #: The name of the neighbour with which a pass did not fuse it, if the reason lies between the
    #: two.
    neighbour: str

    def __str__(self) -> str:
        return f"{self.op} {self.node}: {self._outcome()}"

    def _outcome(self) -> str:
        """In words. The ops of the nodes that it replaces, each with its count, stand for them."""
        if self.reason:
            beside = f" with {self.neighbour}" if self.neighbour else ""
            return f"not fused{beside}: {self.reason}"
        if not self.replaces:
            return "fused"
        ops = Counter(part.split()[0] for part in self.replaces)
        names = (op if count == 1 else f"{count} x {op}" for op, count in ops.items())
        return f"replaces {', '.join(names)}"


@dataclass(frozen=True)
class Placement:
    """Where a node is since the optimizer made regions."""

    #: The node's name.
    node: str
    #: Its op.
    op: str
    #: The name of the region that holds it; empty if none does.
    region: str
    #: Why it is in no region; empty if it is in one.
    reason: str


class Explanation(tuple):  # of Decision
    """What `explain` returns: a `Decision` for each node, fused nodes first. It prints as a list,
    and as a table in notebooks. Nodes that lie in a region are decided like all others.
    """

    #: The largest optimized graph as a picture in SVG. `save` writes it to a file. The nodes of a
    #: region have outlines of one colour.
    picture: str
    #: The place of each node, in a region or outside; empty if no regions are made.
    placements: tuple[Placement, ...]

    @property
    def fused(self) -> tuple[Decision, ...]:
        """The fused nodes."""
        return tuple(decision for decision in self if not decision.reason)

    @property
    def left(self) -> tuple[Decision, ...]:
        """The nodes that are not part of a fused node."""
        return tuple(decision for decision in self if decision.reason)

    @property
    def outside(self) -> tuple[Placement, ...]:
        """The nodes that are in no region, each with the reason. Nodes on other devices are among
        them if they read or make values of the device.
        """
        return tuple(placement for placement in self.placements if placement.reason)

    def save(self, path: str | Path) -> None:
        """Writes the picture of the optimized graph to an SVG file."""
        Path(path).write_text(self.picture, encoding="utf-8")

    def __str__(self) -> str:
        lines = [self._summary()]
        for decision in self:
            lines.append(f"{decision.op} {decision.node}")
            lines += textwrap.wrap(
                decision._outcome(), WIDTH, initial_indent="    ", subsequent_indent="        "
            )
        if self.placements:
            lines.append(self._regions())
        for placement in self.outside:
            lines.append(f"{placement.op} {placement.node}")
            lines += textwrap.wrap(
                placement.reason, WIDTH, initial_indent="    ", subsequent_indent="        "
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = [(decision.op, decision.node, decision._outcome()) for decision in self]
        tables = _notebook.table(self._summary(), ("op", "node", "outcome"), rows)
        if self.placements:
            rows = [(outside.op, outside.node, outside.reason) for outside in self.outside]
            tables += _notebook.table(self._regions(), ("op", "node", "in no region, for"), rows)
        return tables

    def _summary(self) -> str:
        if not self:
            return "no node runs on WGPU"
        replaced = sum(len(decision.replaces) for decision in self)
        return f"{len(self.fused)} fused nodes replace {replaced}; {len(self.left)} are not fused"

    def _regions(self) -> str:
        regions = {placement.region for placement in self.placements if placement.region}
        held = len(self.placements) - len(self.outside)
        return f"{len(regions)} regions hold {held} nodes; {len(self.outside)} are outside"


def explain(fn_or_model: Callable, *inputs: Any, **keywords: Any) -> Explanation:
    """Traces and runs a program once, and returns what the graph optimizer did with its nodes:
    which it fused, and why it left the others alone.

    `fn_or_model` is a `tf.function`, a Keras model, which is called, or any other callable of
    TensorFlow ops, which is traced as the body of a `tf.function`. `inputs` and `keywords` are its
    arguments. Its variables get their values back afterwards. To see a training step, give a
    function that computes one:

        @tf.function
        def step(x, y):
            with tf.GradientTape() as tape:
                loss = model.compute_loss(x, y, model(x, training=True))
            variables = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

        found = tensorflow_wgpu.explain(step, x, y)
        print(found)
        found.save("graph.svg")

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
    for row in _rows(folder / "fusions.tsv"):
        replaces = tuple(filter(None, row["replaces"].split("; ")))
        # TensorFlow optimizes a graph twice, and some nodes keep what the first run knew.
        earlier = found.get(row["node"])
        if earlier and not replaces:
            replaces = earlier.replaces
        found[row["node"]] = Decision(
            row["node"], row["op"], replaces, row["reason"], row["neighbour"]
        )
    placed = {
        row["node"]: Placement(row["node"], row["op"], row["region"], row["reason"])
        for row in _rows(folder / "regions.tsv")
    }
    explanation = Explanation(sorted(found.values(), key=lambda decision: bool(decision.reason)))
    pictures = [path.read_text(encoding="utf-8") for path in folder.glob("graphs/*_after.svg")]
    explanation.picture = max(pictures, key=len, default="")
    explanation.placements = tuple(placed.values())
    return explanation


def _rows(table: Path) -> list[dict[str, str]]:
    """The rows of a table of the optimizer's, which it writes if there are any."""
    if not table.exists():
        return []
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
