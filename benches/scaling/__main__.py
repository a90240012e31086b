"""`python benches/scaling`: how data-parallel training scales from 1 to 1,024 devices, by a model
of what this machine's device, copies and messages take, and how right the model is for runs with
1, 2 and 4 devices and worker processes. Prints Markdown; `--json` keeps the figures, `--from` takes
those of an earlier run instead of measuring.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import measure
import model
from model import Link, Machine, Plan, Step

#: Not measured: round figures of typical machines, for the model's predictions. A step of 100 ms
#: with 100 MB of gradients (ResNet-50's size) in 160 tensors; a copy over 16 lanes of PCIe 4.0 has
#: 20 µs and 12 GB/s, the host adds 25 GB/s. Links between machines have a latency and a rate.
ASSUMED = {
    "8 GPUs a machine, 10 Gbit/s": (8, 50e-6, 1.1e9),
    "8 GPUs a machine, 100 Gbit/s": (8, 20e-6, 11e9),
    "1 GPU a machine, 10 Gbit/s": (1, 50e-6, 1.1e9),
}
ASSUMED_STEP = Step(0.033, 0.067, (100e6 / 160,) * 160)
SHOWN = (1, 2, 4, 8, 16, 64, 256, 1024)


def assumed(devices: int, latency: float, rate: float) -> Machine:
    """A machine of `ASSUMED`."""
    pcie = Link(20e-6, 1 / 12e9, 1 / 25e9)
    network = Link(latency, 1 / rate, 1 / 25e9)
    return Machine(devices, down=pcie, up=pcie, network=network)


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def size(count: float) -> str:
    """Bytes of a bucket as text."""
    if not count:
        return "one of all"
    return f"{count / 2**20:g} MiB" if count >= 2**20 else f"{count / 2**10:g} KiB"


def of_count(count: int | None) -> str:
    """The position of a knee as text."""
    return "more than 1,024" if count is None else f"{count:,}"


def scaling(name: str, step: Step, machine: Machine) -> str:
    """The scaling of a step on a machine, and its requirements."""
    rows = []
    for n in SHOWN:
        cells = [f"{n:,}"]
        for topology in model.TOPOLOGIES:
            # The best bucket for each topology.
            plans = [Plan(topology, b) for b in model.BUCKETS]
            top = max(plans, key=lambda p: model.efficiency(step, machine, p, n))
            cells.append(f"{100 * model.efficiency(step, machine, top, n):.0f} %")
        apart = Plan("ring", overlap=False)
        cells.append(f"{100 * model.efficiency(step, machine, apart, n):.0f} %")
        plan = model.best(step, machine, n)
        cells.append(f"{plan.topology}, {size(plan.bucket)}" if n > 1 else "")
        rows.append(cells)
    head = ["Devices", *model.TOPOLOGIES, "ring, after the pass", "Best: topology, bucket"]
    knees = []
    for overlap in (True, False):
        plan = dataclasses.replace(model.best(step, machine, 64), overlap=overlap)
        below = [of_count(model.knee(step, machine, plan, least)) for least in (0.8, 0.5)]
        how = f"{plan.topology}, {size(plan.bucket)}, {'' if overlap else 'no '}overlap"
        knees.append(f"{how}: below 80 % from {below[0]} devices, below 50 % from {below[1]}.")
    return f"### {name}\n\n{table(head, rows)}\n\n" + "\n".join(knees) + "\n"


def predicted(
    work: measure.Work, step: Step, machine: Machine, how: str, n: int
) -> tuple[float, float]:
    """Seconds of a step, and processor seconds of all replicas."""
    if how == "workers":
        machine, plan = dataclasses.replace(machine, devices=1), Plan("ring", work.bucket)
        # Each worker's gradients are copied down and up around the ring.
        cost = [machine.hop(), *[machine.network] * (n > 1)]
        ends = sum(work.gradients()) * cost[0].cpu_per_byte + cost[0].cpu
        extra = n * ends if n > 1 else 0.0
        # All of them share one machine's processors.
        processors = (machine.processors or 1) / n
        machine = dataclasses.replace(machine, processors=processors)
    else:
        # Within one machine the ring's hops are copies down and up.
        plan = Plan("ring", 0.0, flat=True) if how == "ring" else Plan("one", work.bucket)
        extra = 0.0
    cost = model.communication(machine, plan, n)
    summed = [cost(b) for _, b in model.buckets(step.gradients, plan.bucket)]
    alone = machine.crowding if n > 1 else 1.0
    cpu = n * step.cpu * alone + sum(c.cpu for c in summed) * (n > 1) + extra
    wall = model.step_time(step, machine, plan, n)
    if machine.processors:
        wall = max(wall, cpu / (machine.processors * (n if how == "workers" else 1)))
    return wall, cpu


def checked(options: argparse.Namespace, work: measure.Work) -> dict[str, Any]:
    """Measures the inputs of the model, then the runs that check it, in turn."""
    adapter = measure.adapter_of()
    load = measure.Load()
    load.ask()
    step, machine, raw = measure.figures(
        work, options.adapter, adapter["type"] == "Cpu", load.mean(), bool(options.workers)
    )
    runs: dict[str, list[dict[str, Any]]] = {}
    #: Processor seconds of steps without their reduction, by devices.
    computed: dict[int, list[float]] = {}
    for _ in range(options.rounds):
        for n in options.devices:
            load.ask()
            ran = measure.run_devices(work, n, options.adapter)
            runs.setdefault(f"host {n}", []).append(ran["train"])
            computed.setdefault(n, []).append(ran["compute"]["cpu"])
            if n > 1:
                whole = {"TF_WGPU_DISTRIBUTE": "collective"}
                ran = measure.run_devices(work._replace(bucket=0), n, options.adapter, **whole)
                runs.setdefault(f"ring {n}", []).append(ran["train"])
        for n in options.workers:
            load.ask()
            ran = measure.run_workers(work, n, options.adapter)
            runs.setdefault(f"workers {n}", []).append(ran["train"])
    if machine.processors is not None:
        machine = dataclasses.replace(machine, processors=load.mean(), crowding=crowding(computed))
    ones = runs.get("host 1")
    if ones:
        # The runs with one device in between are under the same load as these.
        median = {k: sorted(r[k] for r in ones)[len(ones) // 2] for k in ("wall", "cpu")}
        scale = median["wall"] / step.alone()
        step = dataclasses.replace(
            step,
            forward=step.forward * scale,
            backward=step.backward * scale,
            update=step.update * scale,
            cpu=median["cpu"],
        )
    return {
        "kind": "scaling",
        "schema": 1,
        "date": datetime.date.today().isoformat(),
        "command": " ".join(sys.argv[1:]),
        "adapter": adapter,
        "work": work._asdict(),
        "step": dataclasses.asdict(step),
        "machine": dataclasses.asdict(machine),
        "raw": raw,
        "runs": runs,
    }


def crowding(computed: dict[int, list[float]]) -> float:
    """The time of a step without its reduction beside another one, divided by its time alone."""
    if not {1, 2} <= set(computed):
        return 1.0
    alone, beside = (sorted(computed[n])[len(computed[n]) // 2] for n in (1, 2))
    return max(beside / (2 * alone), 1.0)


def loaded(found: dict[str, Any]) -> tuple[Step, Machine]:
    """The step and the machine of a stored run."""
    links = {k: Link(**found["machine"][k]) for k in ("down", "up", "network")}
    step = Step(**{**found["step"], "gradients": tuple(found["step"]["gradients"])})
    return step, Machine(**{**found["machine"], **links})


def report(found: dict[str, Any]) -> str:
    """The whole report as Markdown."""
    step, machine = loaded(found)
    work = measure.Work(**found["work"])
    adapter = found["adapter"]
    text = [
        f"{adapter['name']}, {adapter.get('driver', '')}, {found['date']}, `{found['command']}`: "
        f"{work.layers} dense layers of {work.width}, {work.batch} rows a device.",
        "",
        f"A step {1e3 * step.alone():.0f} ms, {1e3 * step.cpu:.0f} ms of processors, of which "
        f"there were {machine.processors or 0:.2f}; beside others {machine.crowding:.2f} times "
        "that much of them.",
    ]
    for name in ("down", "up", "network"):
        link = getattr(machine, name)
        rate = 1e-9 / link.per_byte if link.per_byte else float("inf")
        text.append(f"{name}: {1e3 * link.latency:.2f} ms, {rate:.2f} GB/s.")
    rows = []
    for key, ran in found["runs"].items():
        how, n = key.split()
        wall = sorted(r["wall"] for r in ran)[len(ran) // 2]
        cpu = sorted(r["cpu"] for r in ran)[len(ran) // 2]
        guess, guess_cpu = predicted(work, step, machine, how, int(n))
        rows.append(
            [
                *(how, n),
                *(f"{1e3 * t:.0f}" for t in (wall, guess)),
                f"{guess / wall:.2f}",
                *(f"{1e3 * t:.0f}" for t in (cpu, guess_cpu)),
                f"{guess_cpu / cpu:.2f}",
            ]
        )
    head = ["Reduction", "Devices", "ms", "model", "ratio", "CPU ms", "model", "ratio"]
    text += ["", table(head, rows), ""]
    text.append(scaling("This machine, one such device each, its loopback", *apart(step, machine)))
    for name, (devices, latency, rate) in ASSUMED.items():
        text.append(scaling(f"Assumed: {name}", ASSUMED_STEP, assumed(devices, latency, rate)))
    return "\n".join(text)


def apart(step: Step, machine: Machine) -> tuple[Step, Machine]:
    """The step and machine as if each device were a separate machine, with this machine's loopback
    between them.
    """
    return step, dataclasses.replace(machine, devices=1, processors=None)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="scaling", description=__doc__)
    parser.add_argument("--devices", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--adapter", type=int, default=0, help="as TF_WGPU_VISIBLE_DEVICES counts")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bucket", type=int, default=1 << 20)
    parser.add_argument("--json", type=Path, help="keep the figures")
    parser.add_argument("--from", type=Path, dest="kept", help="take the figures of --json")
    options = parser.parse_args()
    if options.kept:
        found = json.loads(options.kept.read_text())
    else:
        work = measure.Work(
            options.layers, options.width, options.batch, options.steps, options.bucket
        )
        found = checked(options, work)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    print(report(found))


if __name__ == "__main__":
    main()
