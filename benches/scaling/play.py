"""Simulates an all-reduce message by message: the source, target and bytes of each, in order, over
ports that carry one message at a time in each direction. It checks the formulas of `model.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from model import Link


class Message(NamedTuple):
    """Bytes from one place to another, which adds them or only keeps them."""

    source: int
    target: int
    size: float
    is_added: bool


def ring(n: int, size: float) -> Iterator[list[Message]]:
    """Reduce-scatter and all-gather: in each round every place sends a part to the next."""
    for turn in range(2 * (n - 1)):
        yield [Message(i, (i + 1) % n, size / n, turn < n - 1) for i in range(n)]


def tree(n: int, size: float) -> Iterator[list[Message]]:
    """A binomial tree to place 0, and the same way back."""
    distances = [2**k for k in range((n - 1).bit_length())]
    for d in distances:
        yield [Message(i + d, i, size, True) for i in range(0, n - d, 2 * d)]
    for d in reversed(distances):
        yield [Message(i, i + d, size, False) for i in range(0, n - d, 2 * d)]


def one(n: int, size: float) -> Iterator[list[Message]]:
    """All send to place 0, and it sends the sum back."""
    yield [Message(i, 0, size, True) for i in range(1, n)]
    yield [Message(0, i, size, False) for i in range(1, n)]


SCHEDULES = {"ring": ring, "tree": tree, "one": one}


def play(topology: str, n: int, size: float, link: Link) -> float:
    """Seconds until every place has the sum.

    A message starts when its sender has the data. Its latency passes on the way, so messages to one
    place follow each other by their bytes; additions there happen one after the other, while the
    next message arrives.
    """
    has = [0.0] * n
    sends, receives, adds = [0.0] * n, [0.0] * n, [0.0] * n
    for messages in SCHEDULES[topology](n, size):
        after = list(has)
        for source, target, part, is_added in messages:
            bytes_take = part * link.per_byte
            begin = max(has[source], sends[source], receives[target] - link.latency)
            sends[source] = begin + bytes_take
            arrived = receives[target] = begin + link.latency + bytes_take
            if is_added:
                adds[target] = max(adds[target], arrived, has[target]) + part * link.add_per_byte
                arrived = adds[target]
            after[target] = max(after[target], arrived)
        has = after
    return max(has)
