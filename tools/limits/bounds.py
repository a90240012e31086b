"""How fast a loop can run at most on a GPU, by what its instructions occupy.

Each GPU's model says how many clocks the parts of one of its schedulers are busy with a pass
through the loop, for one subgroup. The loop takes at least as long as its busiest part. The bound
is the share of that time in which the multiply-adds alone would be done. Latencies and the memory
behind the nearest cache are left out, so no kernel is as fast as its bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from machine_code import Counts

#: Multiply-adds of matrix units in a clock, for one scheduler: f16 with sums in f32.
RDNA3_MATRIX = 128
RDNA4_MATRIX = 256
NVIDIA_MATRIX = 64


class Bound(NamedTuple):
    """The largest possible share of the peak rate, and the part that limits it."""

    share: float
    by: str
    #: The share of the peak without dual issue, where a GPU has it.
    single: float | None = None


class Busy(NamedTuple):
    """Clocks of the multiply-adds alone, and clocks of each part."""

    useful: float
    parts: dict[str, float]

    def bound(self) -> tuple[float, str]:
        """The share of the useful clocks, and the busiest part."""
        by, clocks = max(self.parts.items(), key=lambda part: part[1])
        return (min(1.0, self.useful / clocks) if clocks else 0.0), by


#: The bound of a loop with these counts, and the number of lanes in a subgroup.
Model = Callable[[Counts, int], Bound]


def rdna(matrix_rate: int) -> Model:
    """RDNA3 and RDNA4: a compute unit has two SIMDs of 32 lanes, which share 128 bytes a clock of
    workgroup memory and 64 bytes a clock of the nearest cache. They issue two simple instructions
    at once: pairs of VOPD for subgroups of 32, the halves of a subgroup for 64.
    """

    def model(counts: Counts, lanes: int) -> Bound:
        fma = counts["fma"] + counts["fma16"] / 2
        passes = lanes / 32
        arithmetic = counts["vector"] * passes
        paired = arithmetic - counts["dual"] * (passes - 1)
        matrix = counts["matrix_fma"] / matrix_rate
        others = {
            "LDS": counts["lds_bytes"] * lanes / 64,
            "L0": counts["memory_bytes"] * lanes / 32,
        }
        if matrix:
            share, by = Busy(matrix, {"instructions": matrix + arithmetic, **others}).bound()
            return Bound(share, by)
        single, _ = Busy(fma * passes, {"instructions": arithmetic, **others}).bound()
        share, by = Busy(fma * lanes / 64, {"instructions": paired, **others}).bound()
        return Bound(share, by, single)

    return model


def nvidia(fp32_clocks: int) -> Model:
    """An SM has four schedulers that issue an instruction a clock, for 32 lanes. Turing's units of
    f32 take two clocks for it. Lanes that read the same address of workgroup memory are served at
    once, so its bytes say nothing and are left out.
    """

    def model(counts: Counts, lanes: int) -> Bound:
        fma = (counts["fma"] + counts["fma16"] / 2) * fp32_clocks
        parts = {
            "instructions": counts["issued"],
            "f32": (counts["fma"] + counts["fma16"] / 2 + counts["float"]) * fp32_clocks,
            "L1": counts["memory_bytes"] * lanes / 32,
        }
        matrix = counts["matrix_fma"] / NVIDIA_MATRIX
        if matrix:
            return Bound(*Busy(matrix, {**parts, "matrix units": matrix}).bound())
        return Bound(*Busy(fma, parts).bound())

    return model


def intel(width: int) -> Model:
    """A core's vector engines of `width` lanes issue an instruction a clock; together they have 128
    lanes and 128 bytes a clock of workgroup memory and of the nearest cache. The second port, which
    can take an integer instruction beside one of floats, is left out. Matrix units run beside the
    others, with eight multiply-adds of f16 for a lane.
    """

    def model(counts: Counts, lanes: int) -> Bound:
        fma = counts["fma"] * max(1.0, lanes / width)
        accesses = (counts["lds_bytes"] + counts["memory_bytes"]) * lanes / width
        parts = {"instructions": counts[f"clocks{width}"], "SLM and L1": accesses}
        matrix = counts["matrix_fma"] / (8 * width)
        if matrix:
            return Bound(*Busy(matrix, {**parts, "matrix units": matrix}).bound())
        return Bound(*Busy(fma, parts).bound())

    return model


def apple(counts: Counts, _: int) -> Bound:
    """A scheduler issues an instruction a clock, for 32 lanes. Nothing is published about the rates
    of memories.
    """
    fma = counts["fma"] + counts["fma16"]
    return Bound(*Busy(fma, {"instructions": counts["issued"] - counts["waits"]}).bound())


def adreno(counts: Counts, _: int) -> Bound:
    """A processor takes an instruction at a time; the clocks for which the code makes it wait
    count, too.
    """
    fma = counts["fma"] + counts["fma16"]
    return Bound(*Busy(fma, {"instructions": counts["issued"] + counts["idle"]}).bound())
