"""`python benches/scaling`: the model's arithmetic, its bounds, and the messages that it counts."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCALING = Path(__file__).parents[2] / "benches" / "scaling"


def load(name: str) -> ModuleType:
    """A module of the tool; the folder is no package."""
    spec = importlib.util.spec_from_file_location(name, SCALING / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


model = load("model")
play = load("play")
measure = load("measure")

Link, Machine, Plan, Step = model.Link, model.Machine, model.Plan, model.Step
LINK = Link(1e-3, 1e-6, 2e-7, 1e-4, 1e-7)
STEP = Step(0.03, 0.06, (1e4,) * 20, cpu=0.05, update=0.01)
NETWORK = Machine(devices=1, network=LINK)


def test_a_ring_sends_its_parts_around_twice():
    # 2·(n - 1) messages of a part and n - 1 additions: Thakur et al.
    took = model.all_reduce("ring", 4, 8000, LINK)
    assert took.wall == pytest.approx(6 * (1e-3 + 2000e-6) + 3 * 2000 * 2e-7)
    assert took.cpu == pytest.approx(4 * (6 * (1e-4 + 2000e-7) + 3 * 2000 * 2e-7))


def test_a_tree_goes_up_and_down_whole():
    took = model.all_reduce("tree", 8, 8000, LINK)
    assert took.wall == pytest.approx(6 * (1e-3 + 8000e-6) + 3 * 8000 * 2e-7)


def test_one_place_takes_all():
    took = model.all_reduce("one", 5, 8000, LINK)
    assert took.wall == pytest.approx(2 * (1e-3 + 4 * 8000e-6) + 4 * 8000 * 2e-7)


@pytest.mark.parametrize("topology", model.TOPOLOGIES)
def test_one_device_has_nothing_to_sum(topology: str):
    assert model.all_reduce(topology, 1, 1e9, LINK) == model.Cost()
    assert model.step_time(STEP, NETWORK, Plan(topology), 1) == pytest.approx(0.1)


def test_an_unknown_topology_is_an_error():
    with pytest.raises(ValueError, match="star is none of ring, tree, one"):
        model.all_reduce("star", 2, 1, LINK)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8, 16, 33, 64])
@pytest.mark.parametrize("topology", model.TOPOLOGIES)
def test_the_formulas_are_the_messages_played(topology: str, n: int):
    size = 1e5
    played = play.play(topology, n, size, LINK)
    formula = model.all_reduce(topology, n, size, LINK).wall
    if topology == "ring" or (topology == "tree" and n & (n - 1) == 0):
        assert played == pytest.approx(formula)
    else:
        # The formula is for full trees, and adds only after all messages have arrived.
        assert 0.65 * formula <= played <= formula * (1 + 1e-12)


@pytest.mark.parametrize("n", [2, 8, 64, 1024])
def test_no_all_reduce_sends_fewer_bytes_than_the_ring(n: int):
    # Patarasuk and Yuan: 2·(n - 1)/n of the bytes.
    free = Link(0.0, 1e-6)
    ring = model.all_reduce("ring", n, 1e6, free).wall
    assert ring == pytest.approx(2 * (n - 1) / n)
    for topology in ("tree", "one"):
        assert model.all_reduce(topology, n, 1e6, free).wall >= ring


def test_small_sums_want_a_tree_and_large_ones_a_ring():
    def least(size: float) -> str:
        return min(model.TOPOLOGIES, key=lambda t: model.all_reduce(t, 64, size, LINK).wall)

    assert (least(10), least(1e6)) == ("one", "ring")
    assert least(500) == "tree"


def test_buckets_are_full_when_their_gradients_are_there():
    assert model.buckets((1.0, 1.0, 1.0, 1.0), 2) == [(0.5, 2.0), (1.0, 2.0)]
    assert model.buckets((1.0, 1.0, 1.0), 2) == [(2 / 3, 2.0), (1.0, 1.0)]
    assert model.buckets((1.0, 2.0), 0) == [(1.0, 3.0)]
    assert model.buckets((9.0, 1.0), 2) == [(0.5, 9.0), (1.0, 1.0)]


def test_a_sum_that_fits_beside_the_pass_costs_its_last_bucket_alone():
    fast = Machine(devices=1, network=Link(1e-5, 1e-9))
    plan = Plan("ring", 1e4)
    last = model.all_reduce("ring", 2, 1e4, fast.network).wall
    assert model.step_time(STEP, fast, plan, 2) == pytest.approx(0.1 + last)
    apart = dataclasses.replace(plan, overlap=False)
    assert model.step_time(STEP, fast, apart, 2) == pytest.approx(0.1 + 20 * last)


def test_a_sum_that_does_not_fit_is_as_long_as_it_takes():
    # From the first bucket on, one after the other.
    each = model.all_reduce("ring", 8, 1e4, LINK).wall
    assert each > STEP.backward / 20
    want = STEP.forward + STEP.backward / 20 + 20 * each + STEP.update
    assert model.step_time(STEP, NETWORK, Plan("ring", 1e4), 8) == pytest.approx(want)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("topology", model.TOPOLOGIES)
@pytest.mark.parametrize("bucket", [0, 1e4, 5e4])
def test_more_devices_are_never_more_efficient(topology: str, bucket: float, overlap: bool):
    plan = Plan(topology, bucket, overlap)
    parts = [model.efficiency(STEP, NETWORK, plan, n) for n in model.COUNTS]
    assert parts[0] == 1
    assert all(0 < after <= before for before, after in zip(parts, parts[1:])), parts
    # Overlap and a faster network never harm.
    for n in model.COUNTS:
        took = model.step_time(STEP, NETWORK, plan, n)
        assert model.step_time(STEP, NETWORK, dataclasses.replace(plan, overlap=True), n) <= took
        faster = dataclasses.replace(NETWORK, network=dataclasses.replace(LINK, per_byte=5e-7))
        assert model.step_time(STEP, faster, plan, n) <= took


def test_the_knee_is_where_efficiency_falls():
    plan = model.best(STEP, NETWORK, 64)
    knee = model.knee(STEP, NETWORK, plan, 0.5)
    assert model.efficiency(STEP, NETWORK, plan, knee) < 0.5
    assert model.efficiency(STEP, NETWORK, plan, knee // 2) >= 0.5
    assert model.knee(STEP, Machine(devices=1), plan, 0.8) is None


def test_the_best_plan_is_none_worse_than_any():
    plan = model.best(STEP, NETWORK, 16)
    took = model.step_time(STEP, NETWORK, plan, 16)
    for topology in model.TOPOLOGIES:
        for bucket in model.BUCKETS:
            assert took <= model.step_time(STEP, NETWORK, Plan(topology, bucket), 16)
    # Messages without latency favour small buckets, slow ones few buckets.
    slow = Machine(devices=1, network=Link(1.0, 1e-9))
    assert model.best(STEP, slow, 16).bucket == 0
    assert 0 < model.best(STEP, model.without_latency(NETWORK), 16).bucket <= 1e5


def test_devices_of_one_machine_sum_in_the_host():
    machine = Machine(4, down=Link(1e-3, 1e-6, 1e-7), up=Link(2e-3, 2e-6))
    assert machine.local(1, 1e4) == model.Cost()
    assert machine.local(4, 1e4).wall == pytest.approx(1e-3 + 1e-2 + 2e-3 + 2e-2 + 3 * 1e-3)
    half = dataclasses.replace(machine, links=2)
    assert half.local(4, 1e4).wall == pytest.approx(2 * 33e-3 + 3e-3)
    # A ring of copies takes both ways for each hop.
    flat = model.communication(machine, Plan("ring", flat=True), 4)(1e4)
    assert flat == model.all_reduce("ring", 4, 1e4, machine.hop())
    # Between two machines of four comes one sum of two over the network.
    both = dataclasses.replace(machine, network=LINK)
    eight = model.communication(both, Plan("ring"), 8)(1e4)
    across = model.all_reduce("ring", 2, 1e4, LINK)
    assert eight.wall == pytest.approx(machine.local(4, 1e4).wall + across.wall)


def test_devices_that_share_processors_are_no_faster_than_all_their_work():
    shared = Machine(devices=8, processors=2.0)
    plan = Plan("one")
    # One takes 0.1 s of wall time and 0.05 s of a processor: four fit on two processors.
    times = [model.step_time(STEP, shared, plan, n) for n in (1, 2, 4, 8)]
    assert times == pytest.approx([0.1, 0.1, 0.1, 0.2])
    # A step beside another takes more processor time.
    crowded = dataclasses.replace(shared, crowding=1.5)
    times = [model.step_time(STEP, crowded, plan, n) for n in (1, 4, 8)]
    assert times == pytest.approx([0.1, 0.15, 0.3])
    # Copies are work, too.
    busy = dataclasses.replace(shared, down=Link(0.0, 0.0, 0.0, 0.0, 1e-6))
    assert model.step_time(STEP, busy, plan, 8) == pytest.approx((8 * 0.05 + 8 * 0.2) / 2)


def test_a_line_through_what_was_measured():
    sizes = [1e3, 1e4, 1e5, 1e6]
    latency, per_byte = measure.line(sizes, [1e-3 + s * 1e-9 for s in sizes])
    assert (latency, per_byte) == (pytest.approx(1e-3), pytest.approx(1e-9))
    # Neither is below zero, whatever the clock says.
    latency, per_byte = measure.line(sizes, [4e-3, 3e-3, 2e-3, 1e-3])
    assert latency > 0
    assert per_byte == 0
    assert math.isclose(measure.line([5.0], [2.0])[0], 2.0)


@pytest.mark.nightly
def test_the_tool_measures_predicts_and_keeps_its_figures(tmp_path: Path):
    path = tmp_path / "scaling.json"
    command = [sys.executable, str(SCALING), "--json", str(path), "--devices", "1", "2"]
    command += ["--workers", "2", "--layers", "3", "--width", "64", "--batch", "8"]
    command += ["--steps", "4", "--rounds", "1"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(path.read_text())
    assert (found["kind"], found["schema"]) == ("scaling", 1)
    assert sorted(found["runs"]) == ["host 1", "host 2", "ring 2", "workers 2"]
    assert found["machine"]["down"]["cpu"] > 0
    assert found["machine"]["processors"] > 0
    for row in ("| host | 2 |", "| ring | 2 |", "| workers | 2 |", "| 1,024 |", "below 80 %"):
        assert row in ran.stdout, ran.stdout
    again = [sys.executable, str(SCALING), "--from", str(path)]
    assert subprocess.run(again, capture_output=True, text=True, check=True).stdout == ran.stdout
