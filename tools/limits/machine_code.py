"""Machine code as a compiler lists it: instructions in blocks, and the loops of a program."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Instruction(NamedTuple):
    """An instruction: its name with all modifiers, its operands, and what it writes, if the listing
    has that in front of the name.
    """

    name: str
    operands: str = ""
    result: str = ""


@dataclass
class Block:
    """Instructions that run one after the other, and the names of the blocks that may follow."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)
    successors: list[str] = field(default_factory=list)


#: What an invocation does in some instructions, by these names:
#:
#: - `fma`, `fma16`: multiply-adds of f32 and of f16
#: - `matrix`: products of a subgroup's matrix units; `matrix_fma`: their multiply-adds
#: - `float`, `special`, `alu`: other arithmetic of f32, functions such as exp, all other arithmetic
#: - `lds_loads`, `lds_stores`, `lds_bytes`: accesses to workgroup memory
#: - `loads`, `stores`, `memory_bytes`: accesses to buffers
#: - `private`: accesses to registers in memory, such as spilled ones
#: - `scalar`: instructions for a whole subgroup
#: - `waits`, `barriers`, `branches`
#: - `issued`: all of them
#:
#: A reader may add names that only the bounds of its GPUs know.
Counts = Counter[str]


class Reader(NamedTuple):
    """A compiler's listings."""

    #: The blocks of a listing; the first one is the entry.
    blocks: Callable[[str], list[Block]]
    #: What an instruction does.
    count: Callable[[Instruction], Counts]
    #: How often a loop runs, if its blocks tell.
    passes: Callable[[list[Block]], int | None] = lambda _: None

    def total(self, blocks: Iterable[tuple[Block, int]]) -> Counts:
        """What all instructions of some blocks do, each block so many times."""
        total: Counts = Counter()
        for block, times in blocks:
            for instruction in block.instructions:
                for name, value in self.count(instruction).items():
                    total[name] += value * times
        return total


def follow_each_other(blocks: list[Block], ends: set[str]) -> None:
    """Makes each block the successor of the one before it, unless that one is in `ends`."""
    for block, following in zip(blocks, blocks[1:]):
        if block.name not in ends:
            block.successors.append(following.name)


#: Blocks, each with how often it runs.
Counted = list[tuple[Block, int]]


def natural_loops(blocks: list[Block]) -> list[set[int]]:
    """The numbers of the blocks of each natural loop."""
    if not blocks:
        return []
    places = {block.name: i for i, block in enumerate(blocks)}
    after = [[places[name] for name in block.successors if name in places] for block in blocks]
    before: list[list[int]] = [[] for _ in blocks]
    reached, waiting = {0}, [0]
    while waiting:
        at = waiting.pop()
        for to in after[at]:
            before[to].append(at)
            if to not in reached:
                reached.add(to)
                waiting.append(to)
    dominators = dominators_of(before, reached)
    bodies: dict[int, set[int]] = {}
    for at in sorted(reached):
        for header in after[at]:
            if header in dominators[at]:
                bodies.setdefault(header, {header}).update(body(before, header, at))
    return [found for _, found in sorted(bodies.items())]


def hot_loops(blocks: list[Block], reader: Reader) -> list[Counted]:
    """The innermost loops. A loop that runs a fixed number of times counts as a part of the loop
    around it, if that has no other loops.
    """
    all_loops = natural_loops(blocks)
    # Counters of inner loops are not the loop's own.
    own = [loop.difference(*(other for other in all_loops if other < loop)) for loop in all_loops]
    fixed = [reader.passes([blocks[i] for i in sorted(loop)]) for loop in own]
    found = []
    for number, loop in enumerate(all_loops):
        inner = [i for i, other in enumerate(all_loops) if other < loop]
        is_part = fixed[number] and any(loop < other for other in all_loops)
        if is_part or not all(fixed[i] for i in inner):
            continue
        times = {
            at: math.prod(fixed[i] or 1 for i in inner if at in all_loops[i]) for at in sorted(loop)
        }
        found.append([(blocks[at], count) for at, count in times.items()])
    return found


def dominators_of(before: list[list[int]], reached: set[int]) -> list[set[int]]:
    """For each block, those that every path from the entry to it passes."""
    all_reached = set(reached)
    found = [{0} if i == 0 else set(all_reached) for i in range(len(before))]
    changed = True
    while changed:
        changed = False
        for i in sorted(reached - {0}):
            new = set.intersection(*(found[j] for j in before[i])) | {i}
            changed = changed or new != found[i]
            found[i] = new
    return found


def body(before: list[list[int]], header: int, end: int) -> set[int]:
    """The blocks from which `end` is reached without passing `header`."""
    found, waiting = {end}, [end]
    while waiting:
        at = waiting.pop()
        if at == header:
            continue
        for previous in before[at]:
            if previous not in found:
                found.add(previous)
                waiting.append(previous)
    return found
