"""The nodes of a graph, with those that lie in regions.

A region (`_WgpuRegion`) is a node that holds others in its attribute `nodes`
(`src/kernels/fused/region/members.rs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

#: The op of a region.
OP = "_WgpuRegion"


def all_nodes(function_graphs: Iterable[Any]) -> list[Any]:
    """The nodes that compute in placed graphs, as `_fallbacks.collected` gives them: each region's
    nodes in its place.
    """
    return [
        node
        for functions in function_graphs
        for graph in functions.partition_graphs
        for node in unfolded(graph.node)
    ]


def unfolded(nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes, with a region's nodes in its place. They are what they were before the optimizer
    made the region: on its device, with the names of their inputs.
    """
    nodes = list(nodes)
    #: The name of a region's output, and that of the node's output behind it.
    behind: dict[str, str] = {}
    held = {node.name: _members(node, behind) for node in nodes if node.op == OP}
    for node in nodes:
        for member in held.get(node.name, (node,)):
            if any(_plain(name) in behind for name in member.input):
                # TensorFlow's own message stays as it is.
                copy = type(member)()
                copy.CopyFrom(member)
                copy.input[:] = [behind.get(_plain(name), name) for name in member.input]
                member = copy
            yield member


def _members(region: Any, behind: dict[str, str]) -> list[Any]:
    """The nodes in a region."""
    members = [type(region).FromString(text) for text in region.attr["nodes"].list.s]
    inputs = [name for name in region.input if not name.startswith("^")]
    tensors = len(region.attr["Ttensors"].list.type)
    firsts = {"t": 0, "h": tensors, "v": tensors + len(region.attr["Thost"].list.type)}
    for member in members:
        member.device = region.device
        for at, text in enumerate(member.input):
            if text[0] in firsts:
                member.input[at] = inputs[firsts[text[0]] + int(text[1:])]
            else:
                number, port = text.split(":")
                member.input[at] = _output(members[int(number)].name, int(port))
    places = list(region.attr["outputs"].list.i)
    for at, (number, port) in enumerate(zip(places[::2], places[1::2])):
        behind[_output(region.name, at)] = _output(members[number].name, port)
    return members


def _output(node: str, port: int) -> str:
    """A node's output as an input's name."""
    return f"{node}:{port}" if port else node


def _plain(name: str) -> str:
    """The name of a region's output as graphs have it. In functions it says `results`, too."""
    return name.replace(":results:", ":").removesuffix(":0")
