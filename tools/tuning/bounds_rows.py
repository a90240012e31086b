"""Rows from compilers' bounds: what each candidate's hot loop can reach at most on a chip, and
which candidates are better than the estimate's choice.

The estimate has a cost for each tile, most of it for steps, of which the products are a part. The
compiled loop says what that part is at most, so the cost of the steps is corrected by it. A
candidate gets a row if this leaves at most `COST` of the cost of the estimate's choice, and if
nothing speaks against it that a bound does not see: see `is_comparable`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from shipped_table import Bound, Choice, Class, Row

#: The largest part of the cost of the estimate's choice.
COST = 0.9
#: The smallest part of its occupancy, which hides latencies.
OCCUPANCY = 0.5
#: The most bytes that workgroups load, as a multiple of those of the estimate's choice.
BYTES = 1.5
#: Kinds of tiles whose loops load from workgroup memory or a cache that is shared. The loops of
#: others wait for memory, of which a bound knows nothing.
KINDS = ("double", "workgroup", "subgroup", "matrix")


@dataclass
class Candidate:
    """A tile that was compiled for a row on a chip. The first one of a row is the estimate's."""

    chip: str
    mesa: str
    row: str
    #: The columns of the class, with tabs.
    of: str
    tile: str
    parts: int
    schedule: str
    #: Rows and columns of a tile.
    m: int
    n: int
    #: The estimate's cost, the part of it that the steps have, and the part of a step's cost that
    #: its products have.
    cost: float
    steps: float
    products: float
    bound: float | None = None
    occupancy: int = 0
    spills: int = 0
    problem: str = ""

    def corrected(self) -> float | None:
        """The cost by the compiled loop. None if nothing is known of it."""
        if not self.bound:
            return None
        return self.cost * (1 - self.steps + self.steps * self.products / self.bound)

    def bytes(self) -> float:
        """Loads of a workgroup for each of its results, which all candidates have to compute."""
        return 1 / self.m + 1 / self.n

    def is_of_shared_memory(self) -> bool:
        """Whether its loop loads from workgroup memory or a cache that is shared."""
        return any(kind in self.tile for kind in KINDS)


def candidate(chip: str, mesa: str, row: str, asked: str, told: str) -> Candidate:
    """The candidate that `kernels --candidates` tells."""
    tile, parts, schedule, m, n, *costs = told.split("\t")
    cost, steps, products = (round(float(each), 4) for each in costs)
    about = chip, mesa, row, asked, tile, int(parts), schedule, int(m), int(n)
    return Candidate(*about, cost, steps, products)


def is_comparable(own: Candidate, other: Candidate) -> bool:
    """Whether nothing speaks against a candidate beside the estimate's choice but its bound."""
    return (
        own.is_of_shared_memory()
        and other.is_of_shared_memory()
        and not other.problem
        and not other.spills
        and other.occupancy >= OCCUPANCY * own.occupancy
        and other.bytes() <= BYTES * own.bytes()
        and ("matrix" in own.tile) == ("matrix" in other.tile)
    )


def gains(found: list[Candidate]) -> dict[str, float]:
    """The cost of each better tile, as a part of that of the estimate's choice, for the candidates
    of one row on one chip.
    """
    own, *others = found
    cost = own.corrected()
    if not cost:
        return {}
    compared = ((o.tile, o.corrected()) for o in others if is_comparable(own, o))
    return {tile: other / cost for tile, other in compared if other and other <= COST * cost}


def rows(found: Iterable[Candidate]) -> Iterator[Row]:
    """A row for each class for which one tile is better in all rows and on all chips that have it:
    the one whose smallest gain is the largest.
    """
    classes: dict[str, dict[tuple[str, str], list[Candidate]]] = defaultdict(dict)
    for one in found:
        classes[one.of].setdefault((one.chip, one.row), []).append(one)
    for of, places in sorted(classes.items()):
        each = [gains(candidates) for candidates in places.values()]
        common = set.intersection(*(set(gain) for gain in each))
        if not common:
            continue
        worst = {tile: max(gain[tile] for gain in each) for tile in common}
        tile = min(worst, key=lambda name: (worst[name], name))
        first = min(places)
        own = places[first][0]
        source = Bound(own.chip, own.mesa, own.tile, round(worst[tile], 3))
        yield Row(Class.read(of), Choice(tile), source)


def stored(path: Path) -> list[Candidate]:
    """The candidates of a file, in their order."""
    if not path.exists():
        return []
    return [Candidate(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def store(path: Path, found: Iterable[Candidate]) -> None:
    """Writes candidates by chip and row; those of a row stay in their order."""
    ordered = sorted(found, key=lambda one: (one.chip, one.row))
    path.write_text("".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in ordered))
