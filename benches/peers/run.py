r"""The same work on every peer that is installed, as tables: rates by both clocks, and what of the
targets is met.

Peers are this project's kernels, ONNX Runtime WebGPU, burn, TensorFlow's CPU kernels, TensorFlow on
this plug-in (small operations only), PyTorch on CUDA.

    cargo build --release --example kernels
    python -m venv /tmp/ort && /tmp/ort/bin/pip install onnxruntime-webgpu onnx numpy
    (cd benches/peers/burn && cargo build --release)
    python benches/peers/run.py --onnxruntime-python /tmp/ort/bin/python \
        --json peers.json --markdown peers.md

The peers are asked for the first row in turn, then for the second, and so on, several times, so
that what else the machine does meets all of them. A figure is the median. Each has a Python of its
own where one is given. What is missing or refuses is named below the tables, with what to install;
it never ends the run.

ONNX Runtime does not take lavapipe of Mesa 22.3, which Debian 12 has. A newer driver beside the
system's, for these programs alone, on Debian 12, once the suite bookworm-backports is among apt's
sources:

    sudo apt-get update && sudo apt-get install libllvm15 && mkdir /tmp/mesa25 && cd /tmp/mesa25
    apt-get download {mesa-vulkan-drivers,libdrm2,libdrm-amdgpu1}/bookworm-backports
    for package in *.deb; do dpkg -x $package .; done

`--driver system --driver mesa25=/tmp/mesa25` then runs all peers on each of the two drivers in
turn.

On a machine with a bare GPU, nothing needs to be built: `kernels`, made elsewhere, and a PyTorch
with CUDA do.

    python3 benches/peers/run.py --kernels ./kernels --only ours,pytorch \
        --json peers.json --markdown peers.md

burn tunes itself: `burn/cubecl.toml` keeps that to a minute on a software adapter; `--tune` leaves
it out, for GPUs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from peer import Kernels, Peer
from report import (
    BURN,
    CPU,
    CUDA,
    ORT,
    OURS,
    PLUGIN,
    PROCESSORS,
    WALL,
    Peers,
    notes,
    side_by_side,
    targets,
)
from rows import ROWS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Program(NamedTuple):
    """The way to start a peer."""

    command: list[str]
    #: Whether it uses the driver under test; others run with the first driver only.
    driver: bool = True
    #: The rows that are asked for; if empty, all rows.
    rows: tuple[str, ...] = ()
    #: The folder in which it is started; None for the present one.
    folder: Path | None = None


def binary(*names: str) -> str:
    """The first of these files that exists, relative to the repository, or the first of all."""
    paths = [ROOT / name for name in names]
    return str(next((path for path in paths if path.exists()), paths[0]))


def driver(text: str) -> tuple[str, dict[str, str]]:
    """Parses a driver's name and the environment that selects it: `system`, or `NAME=FOLDER` with
    unpacked packages.
    """
    name, _, folder = text.partition("=")
    if not folder:
        return name, {}
    manifests = sorted(Path(folder).glob("usr/share/vulkan/icd.d/lvp_icd*.json"))
    libraries = sorted(Path(folder).glob("usr/lib/*-linux-gnu"))
    if not manifests or not libraries:
        raise argparse.ArgumentTypeError(f"{folder} has no usr/share/vulkan/icd.d/lvp_icd.json")
    path = os.pathsep.join(
        [*map(str, libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    )
    files = os.pathsep.join(map(str, manifests))
    return name, {"VK_DRIVER_FILES": files, "VK_ICD_FILENAMES": files, "LD_LIBRARY_PATH": path}


def measure(
    programs: dict[str, Program],
    environment: dict[str, str],
    options: argparse.Namespace,
    end: float,
) -> Peers:
    """Asks all peers for all rows, several times or until the time is over; the first round is
    never cut short.

    burn's contractions come last, as long as there is time, each together with ours: burn tunes
    itself for each of them.
    """
    peers: dict[str, Peer] = {}
    for name, program in programs.items():
        print(name, file=sys.stderr, flush=True)
        own = {
            k: v
            for k, v in environment.items()
            if name != CPU or k != "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
        }
        peers[name] = (Kernels if name == OURS else Peer)(
            program.command, own, program.folder, options.patience
        )
    adapter = peers[OURS].told.get("adapter", {}) if OURS in peers else {}
    hardware = adapter.get("type", "Cpu") != "Cpu"
    wanted = options.work.split(",") if options.work else [row.key for row in ROWS]
    works = [row for row in ROWS if row.key in wanted and (hardware or not row.large)]
    rounds = 1 if options.quick else options.rounds
    others = BURN in peers and len(peers) > 1
    half = (time.monotonic() + end) / 2 if others else end
    for number in range(rounds):
        for row in works:
            if number and time.monotonic() > half:
                break
            for name, peer in peers.items():
                later = others and name == BURN and row.unit == "GFLOP/s"
                if not later and (not programs[name].rows or row.key in programs[name].rows):
                    peer.ask(row)
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    for row in works if others else []:
        if row.unit == "GFLOP/s" and time.monotonic() < end:
            for name in [name for name in (OURS, BURN, OURS, BURN) if name in peers]:
                peers[name].ask(row)
    for peer in peers.values():
        peer.close()
    kept = ("about", "refused", "errors", "samples", "told")
    return {name: {key: getattr(peer, key) for key in kept} for name, peer in peers.items()}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kernels",
        type=os.path.abspath,
        help="the kernels' benchmark; the one in target/ without it",
    )
    parser.add_argument("--burn", type=os.path.abspath, help="the program of benches/peers/burn")
    for name in ("onnxruntime", "tensorflow", "pytorch"):
        parser.add_argument(
            f"--{name}-python",
            default=sys.executable,
            help="a Python that has it; this one without it",
        )
    parser.add_argument("--only", help="comma-separated peers, such as ours,burn")
    parser.add_argument(
        "--work", help="comma-separated rows by the keys of rows.py, such as add,gelu"
    )
    parser.add_argument(
        "--driver",
        type=driver,
        action="append",
        help="a name for the system's, or NAME=FOLDER; may be repeated",
    )
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured")
    parser.add_argument(
        "--seconds", type=float, default=300, help="when no further round is begun or continued"
    )
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds for one answer of a peer"
    )
    parser.add_argument(
        "--tune", action="store_true", help="let burn tune itself as it does by default"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round, our own rows in one short batch each"
    )
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--markdown", help="file for the tables")
    return parser.parse_args()


def main() -> int:
    """Runs the peers. The exit code is 1 if none ran."""
    options = arguments()
    ours = options.kernels or binary(
        "target/release/examples/kernels", "target/debug/examples/kernels"
    )
    burn = options.burn or binary("benches/peers/burn/target/release/peer-burn")
    tensorflow = [options.tensorflow_python, str(HERE / "tensorflow_ops.py")]
    programs = {
        OURS: Program([ours, "--serve", "--batch", "8", *(["--quick"] if options.quick else [])]),
        ORT: Program([options.onnxruntime_python, str(HERE / "onnxruntime_webgpu.py")]),
        BURN: Program([burn], folder=None if options.tune else HERE / "burn"),
        CPU: Program(tensorflow, driver=False),
        PLUGIN: Program([*tensorflow, "WGPU:0"], driver=False, rows=("small",)),
        CUDA: Program([options.pytorch_python, str(HERE / "pytorch_cuda.py")], driver=False),
    }
    if options.only:
        wanted = options.only.lower().split(",")
        programs = {
            name: p for name, p in programs.items() if any(w in name.lower() for w in wanted)
        }
    drivers = options.driver or [driver("system")]
    start, runs = time.monotonic(), {}
    for number, (name, selection) in enumerate(drivers):
        print(f"driver {name}", file=sys.stderr, flush=True)
        chosen = {key: program for key, program in programs.items() if program.driver or not number}
        environment = {**os.environ, **selection}
        # Each driver has its share of the time, less the time by which earlier drivers exceeded
        # theirs.
        end = start + options.seconds * (number + 1) / len(drivers)
        runs[name] = measure(chosen, environment, options, end)
    for peers in runs.values():
        for name, hint in (
            (BURN, "cargo build --release in benches/peers/burn"),
            (OURS, "see the head of run.py"),
        ):
            if name in peers and (peers[name]["refused"] or "").endswith(" is not there"):
                peers[name]["refused"] += f": {hint}"
    parts = [
        side_by_side(runs, WALL),
        "By processor seconds:",
        side_by_side(runs, PROCESSORS),
        targets(runs),
        notes(runs),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text, encoding="utf-8")
    if options.json:
        results = {
            "kind": "peers",
            "schema": 2,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
            "command": sys.argv,
            "rows": [row._asdict() for row in ROWS],
            "runs": runs,
        }
        Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0 if any(peer["samples"] for peers in runs.values() for peer in peers.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
