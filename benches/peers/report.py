"""The figures as Markdown: peers side by side, and the project's targets."""

from __future__ import annotations

import statistics
from typing import Any, NamedTuple

from rows import ROWS, rate

OURS, PLUGIN = "ours", "TensorFlow WGPU"
ORT, BURN, CPU, CUDA = "ONNX Runtime WebGPU", "burn", "TensorFlow CPU", "PyTorch CUDA"
#: A reference that is no program: the adapter's rate in a copy.
COPY = "copy bandwidth"
#: A driver's peers by name, each with `about`, `refused`, `errors`, and `samples`: seconds by both
#: clocks for each row.
Peers = dict[str, dict[str, Any]]
#: The indices of a sample's figures.
WALL, PROCESSORS = 0, 1


class Target(NamedTuple):
    """How many times as fast as others the project should be."""

    title: str
    rows: tuple[str, ...]
    #: The required factors by peer, on a software adapter and on a discrete GPU.
    software: dict[str, float]
    discrete: dict[str, float]
    #: Our peer that is compared.
    ours: str = OURS


_CONV = tuple(f"conv{size}{side}" for size in (3, 1) for side in ("", "_x", "_w"))
_ROWS = ("softmax", "sum_last", "sum_first", "layer_norm", "transpose", "max_pool")
TARGETS = [
    Target("MatMul f32", ("matmul", "matmul_large"), {ORT: 2.0, BURN: 1.2}, {CUDA: 0.65}),
    Target("MatMul f16, f32 sums", ("matmul_half",), {}, {CUDA: 0.6}),
    Target("Conv2D forward, both gradients", _CONV, {ORT: 2.5, BURN: 2.5}, {CUDA: 0.6}),
    Target("elementwise", ("add",), {ORT: 1.3}, {COPY: 0.9}),
    Target("fused chain", ("gelu",), {ORT: 8.0}, {COPY: 0.9}),
    Target("softmax, layer norm, reductions, transpose, pooling", _ROWS, {ORT: 2.0}, {COPY: 0.8}),
    Target("small eager op", ("small",), {CPU: 1 / 1.5}, {}, PLUGIN),
]


def seconds(peers: Peers, name: str, key: str, clock: int = WALL) -> float | None:
    """The median of a peer's times for a row."""
    samples = peers.get(name, {}).get("samples", {}).get(key)
    return statistics.median(sample[clock] for sample in samples) if samples else None


def side_by_side(runs: dict[str, Peers], clock: int) -> str:
    """A row for each work, a column for each peer that ran, which holds the figures of each
    driver.
    """
    names = dict.fromkeys(name for peers in runs.values() for name in peers)
    # A peer that does not need a driver ran only with the first.
    drivers = {
        name: [d for d, peers in runs.items() if peers.get(name, {}).get("samples")]
        for name in names
    }
    drivers = {name: found for name, found in drivers.items() if found}
    many = len(runs) > 1
    heads = [
        f"{name}, {' / '.join(found)}" if many and name in (OURS, ORT, BURN) else name
        for name, found in drivers.items()
    ]
    out = ["| Work | Unit | " + " | ".join(heads) + " |", "|" + "---|" * (len(heads) + 2)]
    for row in ROWS:
        if not any(
            row.key in runs[d][name]["samples"] for name, found in drivers.items() for d in found
        ):
            continue
        cells = []
        for name, found in drivers.items():
            took = [seconds(runs[driver], name, row.key, clock) for driver in found]
            cells.append(
                " / ".join(f"{rate(row, s):.3g}" if s else "–" for s in took) if any(took) else "–"
            )
        out.append(f"| {row.title} | {row.unit} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def ratio(peers: Peers, target: Target, against: str, key: str, clock: int) -> float | None:
    """How many times as fast as another peer we are."""
    ours = seconds(peers, target.ours, key, clock)
    if against == COPY:
        peaks = peers.get(OURS, {}).get("told", {}).get("peaks")
        work = next(row.work for row in ROWS if row.key == key)
        other = work / peaks["copy_gb_s"] / 1e9 if peaks else None
    else:
        other = seconds(peers, against, key, clock)
    return other / ours if ours and other else None


def targets(runs: dict[str, Peers]) -> str:
    """Each target for which a driver's peers have figures, then the other rows that burn can be
    compared in.
    """
    head = (
        "| Target | Row | Driver | Against | Times as fast | by processor seconds | Wanted | Met |"
    )
    out = [head, "|" + "---|" * 8]
    for driver, peers in runs.items():
        adapter = peers.get(OURS, {}).get("told", {}).get("adapter", {})
        software = adapter.get("type", "Cpu") == "Cpu"
        for target in TARGETS:
            wanted = target.software if software else target.discrete
            others = {
                **wanted,
                **({BURN: 0.0} if software and BURN not in wanted and target.ours == OURS else {}),
            }
            for key in target.rows:
                for against, times in others.items():
                    by = [ratio(peers, target, against, key, clock) for clock in (WALL, PROCESSORS)]
                    if by[WALL] is None:
                        continue
                    # Processor seconds are meaningless if the device is no processor.
                    by = by if software else by[:1]
                    met = ["yes" if value >= times else "no" for value in by]
                    verdict = met[0] if len(set(met)) == 1 else f"{met[0]}, {met[1]} by processors"
                    told = f"≥ {times:.2g} | {verdict}" if times else "– | –"
                    figures = " | ".join(f"{value:.2f}" for value in by) + (
                        " | –" if len(by) == 1 else ""
                    )
                    title = next(row.title for row in ROWS if row.key == key)
                    out.append(
                        f"| {target.title} | {title} | {driver} | {against} | {figures} | {told} |"
                    )
    return "\n".join(out)


def notes(runs: dict[str, Peers]) -> str:
    """The peers that ran, and those that did not."""
    out = []
    for driver, peers in runs.items():
        for name, peer in peers.items():
            where = f"{name}, {driver}" if len(runs) > 1 else name
            if peer["about"]:
                out.append(f"- {where}: {peer['about']}")
            if peer["refused"]:
                out.append(f"- {where}: {peer['refused']}")
            out += [f"- {where}, {row}: {error}" for row, error in peer["errors"].items()]
    return "\n".join(out)
