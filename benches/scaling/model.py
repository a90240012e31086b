"""A step of data-parallel training as arithmetic: from what one device's step, a copy, an addition
and a message take to a step of 1 to 1,024 devices. Knows nothing of TensorFlow.

All-reduce by ring, tree and reduction to one is as in R. Thakur, R. Rabenseifner, W. Gropp,
"Optimization of Collective Communication Operations in MPICH" (2005), with the latency α, the time
of a byte β and the addition of a byte γ; that no all-reduce sends fewer bytes than the ring's
2·(n - 1)/n of them is P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms" (2009).
`play.py` plays the same messages one by one.

Devices that share processors, as software adapters do, cannot be faster than all the work over all
processors: every part has a wall-clock time and processor seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

TOPOLOGIES = ("ring", "tree", "one")
COUNTS = tuple(2**k for k in range(11))


@dataclass(frozen=True)
class Link:
    """What carries bytes from one place to another, and adds them there."""

    #: Seconds of an empty message.
    latency: float
    #: Seconds of a byte.
    per_byte: float
    #: Seconds to add a byte to what is there.
    add_per_byte: float = 0.0
    #: Processor seconds of an empty message, and of a byte.
    cpu: float = 0.0
    cpu_per_byte: float = 0.0

    def takes(self, size: float) -> float:
        """Seconds of a message."""
        return self.latency + size * self.per_byte

    def works(self, size: float) -> float:
        """Processor seconds of a message."""
        return self.cpu + size * self.cpu_per_byte


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock, and processor seconds of all machines' share of it in sum."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


def all_reduce(topology: str, n: int, size: float, link: Link) -> Cost:
    """The sum of `size` bytes of each of `n` places, in all of them."""
    if n <= 1:
        return Cost()
    if topology == "ring":
        part = size / n
        rounds = 2 * (n - 1)
        wall = rounds * link.takes(part) + (n - 1) * part * link.add_per_byte
        cpu = n * (rounds * link.works(part) + (n - 1) * part * link.add_per_byte)
    elif topology == "tree":
        rounds = math.ceil(math.log2(n))
        wall = 2 * rounds * link.takes(size) + rounds * size * link.add_per_byte
        cpu = (n - 1) * (2 * link.works(size) + size * link.add_per_byte)
    elif topology == "one":
        # All send to one place, whose link takes one byte after the other.
        wall = 2 * (link.latency + (n - 1) * size * link.per_byte)
        wall += (n - 1) * size * link.add_per_byte
        cpu = (n - 1) * (2 * link.works(size) + size * link.add_per_byte)
    else:
        raise ValueError(f"{topology} is none of {', '.join(TOPOLOGIES)}")
    return Cost(wall, cpu)


@dataclass(frozen=True)
class Machine:
    """One machine's devices and what connects them."""

    #: Devices of one machine.
    devices: int = 1
    #: Processors that its devices share; None where each device has arithmetic of its own.
    processors: float | None = None
    #: Processor seconds of a step beside others over those of one alone: caches are shared, too.
    crowding: float = 1.0
    #: A copy from a device to the host and one back. `add_per_byte` of `down` is the host's.
    down: Link = field(default_factory=lambda: Link(0.0, 0.0))
    up: Link = field(default_factory=lambda: Link(0.0, 0.0))
    #: Between machines.
    network: Link = field(default_factory=lambda: Link(0.0, 0.0))
    #: How many of a machine's devices copy at once at full speed; None for all.
    links: int | None = None

    def local(self, n: int, size: float) -> Cost:
        """The sum over `n` of its devices in the host's memory: what `MirroredStrategy` does."""
        if n <= 1:
            return Cost()
        turns = math.ceil(n / (self.links or n))
        adds = (n - 1) * size * self.down.add_per_byte
        wall = turns * (self.down.takes(size) + self.up.takes(size)) + adds
        return Cost(wall, n * (self.down.works(size) + self.up.works(size)) + adds)

    def hop(self) -> Link:
        """From one of its devices to another: down and up."""
        return Link(
            self.down.latency + self.up.latency,
            self.down.per_byte + self.up.per_byte,
            self.down.add_per_byte,
            self.down.cpu + self.up.cpu,
            self.down.cpu_per_byte + self.up.cpu_per_byte,
        )


@dataclass(frozen=True)
class Step:
    """A step of one device alone, of a batch of its own."""

    forward: float
    backward: float
    #: Bytes of the gradients in the order in which they are there: the last layer's first.
    gradients: tuple[float, ...]
    #: Processor seconds of all of it.
    cpu: float = 0.0
    #: Seconds of the update.
    update: float = 0.0

    def alone(self) -> float:
        """Seconds of the whole step."""
        return self.forward + self.backward + self.update


@dataclass(frozen=True)
class Plan:
    """How gradients are summed."""

    #: Between machines; within one, in the host's memory.
    topology: str = "ring"
    #: Bytes of a bucket; 0 for one bucket of all.
    bucket: float = 0.0
    #: Whether a bucket's sum begins while the backward pass goes on.
    overlap: bool = True
    #: Devices of one machine exchange by `topology`, too, by copies down and up.
    flat: bool = False


def buckets(gradients: tuple[float, ...], limit: float) -> list[tuple[float, float]]:
    """When each bucket is full, as a part of the backward pass, and its bytes.

    Gradients come evenly over the pass. A bucket ends when it has `limit` bytes.
    """
    found, filled = [], 0.0
    for i, size in enumerate(gradients):
        filled += size
        is_last = i + 1 == len(gradients)
        if is_last or (limit and filled >= limit):
            found.append(((i + 1) / len(gradients), filled))
            filled = 0.0
    return found


def communication(machine: Machine, plan: Plan, n: int) -> Callable[[float], Cost]:
    """What the sum of so many bytes takes on `n` devices."""
    here = min(n, machine.devices)
    machines = math.ceil(n / machine.devices)
    if plan.flat and machines == 1:
        return lambda size: all_reduce(plan.topology, n, size, machine.hop())

    def cost(size: float) -> Cost:
        local = machine.local(here, size)
        across = all_reduce(plan.topology, machines, size, machine.network)
        return Cost(local.wall + across.wall, local.cpu * machines + across.cpu)

    return cost


def step_time(step: Step, machine: Machine, plan: Plan, n: int) -> float:
    """Seconds of a step of `n` devices, each with a batch of its own."""
    cost = communication(machine, plan, n)
    free, cpu = 0.0, 0.0
    for ready, size in buckets(step.gradients, plan.bucket):
        summed = cost(size)
        free = max(free, step.backward * (ready if plan.overlap else 1.0)) + summed.wall
        cpu += summed.cpu
    wall = step.forward + (max(free, step.backward) if n > 1 else step.backward) + step.update
    if machine.processors is None:
        return wall
    machines = math.ceil(n / machine.devices)
    busy = n * step.cpu * (machine.crowding if n > 1 else 1.0) + cpu
    return max(wall, busy / (machine.processors * machines))


def efficiency(step: Step, machine: Machine, plan: Plan, n: int) -> float:
    """The part of `n` times one device's rate that `n` devices reach."""
    return step_time(step, machine, plan, 1) / step_time(step, machine, plan, n)


def knee(step: Step, machine: Machine, plan: Plan, least: float) -> int | None:
    """The fewest devices, of 1 to 1,024 by twos, whose efficiency is below `least`."""
    return next((n for n in COUNTS if efficiency(step, machine, plan, n) < least), None)


#: Bytes of buckets that are tried: one of all, and 64 KiB to 64 MiB.
BUCKETS = (0, *(2**k for k in range(16, 27)))


def best(step: Step, machine: Machine, n: int, overlap: bool = True) -> Plan:
    """The topology and bucket with the shortest step; the larger bucket where two are equal."""
    plans = [
        Plan(topology, bucket, overlap)
        for topology in TOPOLOGIES
        for bucket in (0, *sorted(BUCKETS[1:], reverse=True))
    ]
    return min(plans, key=lambda plan: step_time(step, machine, plan, n))


def without_latency(machine: Machine) -> Machine:
    """The same with messages that cost their bytes alone: the bound of bandwidth."""
    free = {
        name: replace(getattr(machine, name), latency=0.0) for name in ("down", "up", "network")
    }
    return replace(machine, **free)
