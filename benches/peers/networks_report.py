"""Networks as Markdown: times side by side, the differences between peers, and the times of first
steps.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from typing import Any

from networks import NETWORKS
from report import CPU, ORT, PROCESSORS, WALL, Peers, seconds
from report import PLUGIN as OURS

#: A result is wrong if it differs by more than this share of the largest number.
WRONG = 1e-3


def told(peers: Peers, name: str, key: str) -> dict[str, Any]:
    """A peer's answers about a network besides its times."""
    return peers.get(name, {}).get("facts", {}).get(key, {})


def right(peers: Peers, name: str, key: str) -> bool:
    """Whether its result is that of TensorFlow's CPU kernels."""
    return told(peers, name, key).get("difference", math.inf) <= WRONG


def cell(peers: Peers, name: str, key: str) -> str:
    """Milliseconds of a step, and whether the CPU did a part of it; or the reason why there are
    none.
    """
    took = seconds(peers, name, key, WALL)
    if took is None:
        return "–"
    if not right(peers, name, key):
        return "**wrong**"
    return f"{took * 1e3:.3g}" + (", CPU" if told(peers, name, key).get("on_cpu") else "")


def ratio(peers: Peers, key: str, against: str, clock: int) -> float | None:
    """How many times as fast as another peer we are, if both have the right result on the requested
    device.
    """
    ours, other = (seconds(peers, name, key, clock) for name in (OURS, against))
    both = all(
        right(peers, name, key) and not told(peers, name, key).get("on_cpu")
        for name in (OURS, against)
    )
    return other / ours if ours and other and both else None


def figures(peers: Peers, small: bool) -> str:
    """A row for each network, and the geometric means of the ratios."""
    heads = ("Network", "Size", "Ours, ms", "Dispatches", "ORT WebGPU, ms", "Times as fast")
    heads += ("by processor seconds", "CPU, ms", "Times as fast", "Differences: ours, ORT")
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    compared = {"ort": (ORT, WALL), "processors": (ORT, PROCESSORS), "cpu": (CPU, WALL)}
    ratios: dict[str, list[float]] = {what: [] for what in compared}
    for made in NETWORKS:
        if not any(seconds(peers, name, made.key) for name in peers):
            continue
        text = {}
        for what, found in ratios.items():
            value = ratio(peers, made.key, *compared[what])
            found += [value] if value else []
            text[what] = f"{value:.2f}" if value else "–"
        differ = [told(peers, name, made.key).get("difference") for name in (OURS, ORT)]
        cells = [
            made.title,
            made.sizes(small).title,
            cell(peers, OURS, made.key),
            told(peers, OURS, made.key).get("dispatches", "–"),
            cell(peers, ORT, made.key),
            text["ort"],
            text["processors"],
            cell(peers, CPU, made.key),
            text["cpu"],
            ", ".join("–" if value is None else f"{value:.1e}" for value in differ),
        ]
        out.append(f"| {' | '.join(map(str, cells))} |")
    means = {
        what: f"{statistics.geometric_mean(found):.2f} ({len(found)})" if found else "–"
        for what, found in ratios.items()
    }
    out.append(
        f"| Geometric mean | | | | | {means['ort']} | {means['processors']} | | {means['cpu']} | |"
    )
    return "\n".join(out)


def on_cpu(peers: Peers) -> str:
    """The operations of a network that a peer runs on its CPU."""
    return "\n".join(
        f"- {name}, {made.key}: on the CPU "
        + ", ".join(f"{op} {count}" for op, count in sorted(left.items()))
        for name in (OURS, ORT)
        for made in NETWORKS
        if (left := told(peers, name, made.key).get("on_cpu"))
    )


def shaders(log: str) -> list[tuple[str, str]]:
    """The label and the text of each shader in a log of `TF_WGPU_LOG`'s level trace."""
    found = re.split(r"^.*?compiling shader (.*?):$", log, flags=re.MULTILINE)
    return list(zip(found[1::2], found[2::2]))


def duplicates(log: str) -> Counter[str]:
    """The number of shaders in a log that have the same text as another, ignoring comments, spaces
    and numbers of constants that nothing reads, by the label of the first.
    """
    first: dict[str, str] = {}
    found: Counter[str] = Counter()
    for label, text in shaders(log):
        # A log's next line ends a shader's text.
        text = re.split(r"^tensorflow-wgpu: ", text, flags=re.MULTILINE)[0]
        text = re.sub(r"//.*", "", text)
        for name in re.findall(r"^const (\w+)", text, flags=re.MULTILINE):
            if len(re.findall(rf"\b{name}\b", text)) == 1:
                text = re.sub(rf"^const {name}\b.*$", "", text, flags=re.MULTILINE)
        text = "".join(text.split())
        if text in first:
            found[first[text]] += 1
        first.setdefault(text, label)
    return found


def first_steps(facts: dict[str, list[dict[str, Any]]]) -> str:
    """A row for each network. Its facts are those of a process with an empty cache and of one with
    a full cache.
    """
    heads = ("Network", "Tracing, s", "First step, s", "with a cache", "Second, s", "with a cache")
    heads += ("Pipelines", "Duplicates")
    out = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for made in NETWORKS:
        if len(facts.get(made.key, [])) < 2:
            continue
        cold, warm = facts[made.key]
        times = [run[what] for what in ("first", "second") for run in (cold, warm)]
        cells = [made.title, f"{cold['tracing']:.2f}", *(f"{time:.2f}" for time in times)]
        cells += [cold["pipelines"], sum(cold["duplicates"].values())]
        out.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(out)
