"""A model of a step of data-parallel training: computes the time on 1 to 1,024 devices from the
times of one device's step, a copy, an addition and a message. Knows nothing of TensorFlow.

All-reduce by ring, tree and reduction to one follows R. Thakur, R. Rabenseifner, W. Gropp,
"Optimization of Collective Communication Operations in MPICH" (2005), with the latency α, the time
of a byte β and the addition of a byte γ. That no all-reduce sends fewer bytes than the ring's 2·(n
- 1)/n of them is shown in P. Patarasuk, X. Yuan, "Bandwidth Optimal All-reduce Algorithms" (2009).
`play.py` simulates the same messages one by one.

Devices that share processors, as software adapters do, cannot be faster than the total work divided
by the number of processors: every part has a wall-clock time and processor seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

TOPOLOGIES = ("ring", "tree", "one")
COUNTS = tuple(2**k for k in range(11))


@dataclass(frozen=True)
class Link:
    """A connection that carries bytes from one place to another, and adds them there."""

    #: Seconds of an empty message.
    latency: float
    #: Seconds of a byte.
    per_byte: float
    #: Seconds to add a byte to the data at the target.
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
    """Wall-clock seconds, and the sum of the processor seconds of all machines."""

    wall: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.wall + other.wall, self.cpu + other.cpu)


def all_reduce(topology: str, n: int, size: float, link: Link) -> Cost:
    """The cost of summing `size` bytes of each of `n` places, with the sum in all of them."""
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
        # All places send to one place, whose link takes one byte after the other.
        wall = 2 * (link.latency + (n - 1) * size * link.per_byte)
        wall += (n - 1) * size * link.add_per_byte
        cpu = (n - 1) * (2 * link.works(size) + size * link.add_per_byte)
    else:
        raise ValueError(f"{topology} is none of {', '.join(TOPOLOGIES)}")
    return Cost(wall, cpu)


@dataclass(frozen=True)
class Machine:
    """One machine's devices and their connections."""

    #: Devices of one machine.
    devices: int = 1
    #: Processors that its devices share; None if each device has its own arithmetic units.
    processors: float | None = None
    #: Processor seconds of a step beside others, divided by those of one alone: caches are shared,
    #: too.
    crowding: float = 1.0
    #: A copy from a device to the host, and one back. `add_per_byte` of `down` is the host's.
    down: Link = field(default_factory=lambda: Link(0.0, 0.0))
    up: Link = field(default_factory=lambda: Link(0.0, 0.0))
    #: The connection between machines.
    network: Link = field(default_factory=lambda: Link(0.0, 0.0))
    #: The number of a machine's devices that can copy at once at full speed; None for all.
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
        """The link from one of its devices to another: down and up."""
        return Link(
            self.down.latency + self.up.latency,
            self.down.per_byte + self.up.per_byte,
            self.down.add_per_byte,
            self.down.cpu + self.up.cpu,
            self.down.cpu_per_byte + self.up.cpu_per_byte,
        )


@dataclass(frozen=True)
class Step:
    """A step of one device alone with its own batch."""

    forward: float
    backward: float
    #: Bytes of the gradients in the order in which they are computed: the last layer's first.
    gradients: tuple[float, ...]
    #: Processor seconds of the whole step.
    cpu: float = 0.0
    #: Seconds of the update.
    update: float = 0.0

    def alone(self) -> float:
        """Seconds of the whole step."""
        return self.forward + self.backward + self.update


@dataclass(frozen=True)
class Plan:
    """How gradients are summed."""

    #: The topology between machines; within one machine, gradients are summed in the host's memory.
    topology: str = "ring"
    #: Bytes of a bucket; 0 for one bucket of all.
    bucket: float = 0.0
    #: Whether the sum of a bucket begins while the backward pass goes on.
    overlap: bool = True
    #: Whether the devices of one machine exchange by `topology`, too, by copies down and up.
    flat: bool = False


def buckets(gradients: tuple[float, ...], limit: float) -> list[tuple[float, float]]:
    """The time when each bucket is full, as a share of the backward pass, and its bytes.

    Gradients are spread evenly over the pass. A bucket ends when it has `limit` bytes.
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
    """The cost of summing a number of bytes on `n` devices."""
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
    """Seconds of a step of `n` devices, each with its own batch."""
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
    """The share of `n` times one device's rate that `n` devices reach."""
    return step_time(step, machine, plan, 1) / step_time(step, machine, plan, n)


def knee(step: Step, machine: Machine, plan: Plan, least: float) -> int | None:
    """The smallest power of two of 1 to 1,024 devices whose efficiency is below `least`."""
    return next((n for n in COUNTS if efficiency(step, machine, plan, n) < least), None)


#: The bucket sizes that are tried, in bytes: one bucket of all, and 64 KiB to 64 MiB.
BUCKETS = (0, *(2**k for k in range(16, 27)))


def best(step: Step, machine: Machine, n: int, overlap: bool = True) -> Plan:
    """The topology and bucket with the shortest step; of two equal ones, the larger bucket."""
    plans = [
        Plan(topology, bucket, overlap)
        for topology in TOPOLOGIES
        for bucket in (0, *sorted(BUCKETS[1:], reverse=True))
    ]
    return min(plans, key=lambda plan: step_time(step, machine, plan, n))


def without_latency(machine: Machine) -> Machine:
    """The same machine with messages that cost only their bytes: the bound by bandwidth."""
    free = {
        name: replace(getattr(machine, name), latency=0.0) for name in ("down", "up", "network")
    }
    return replace(machine, **free)
