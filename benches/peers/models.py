r"""Whole networks on TensorFlow with this plug-in, on ONNX Runtime's WebGPU provider and on
TensorFlow's CPU, as a table.

    make install
    .venv/bin/python -m pip install --no-deps tf2onnx onnx
    python -m venv /tmp/ort && /tmp/ort/bin/pip install onnxruntime-webgpu onnx numpy
    .venv/bin/python benches/peers/models.py --onnxruntime-python /tmp/ort/bin/python \
        --json models.json --markdown models.md

Both peers get the adapter that is the first to them. On a software adapter, `--small` makes all ten
end in ten minutes on two cores. ONNX Runtime needs a driver beside Debian 12's, of which the head
of run.py tells: `--driver mesa25=/tmp/mesa25`.

Weights are random and the same everywhere. Each network is exported once, into `--folder`, where it
stays. Then each peer is asked for the first, each for the second, and so on, several times. A
figure is the median of the rounds. A result that is not that of TensorFlow's CPU kernels is named
wrong, and has no time. Ratios leave out what a peer gives to its own CPU, such as ONNX's op GRU.

`--first-steps` tells instead how long ours takes from an empty shader cache to the end of the first
and of the second step, in a process for each network, and again with what the first one compiled.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import networks_report
from networks import NETWORKS
from peer import Peer
from report import CPU, ORT, Peers, notes
from report import PLUGIN as OURS
from rows import Row
from run import ROOT, driver

HERE = Path(__file__).parent
EXPORT = "export"
#: A network as a row of the protocol: a step is a unit of work.
ROWS = [Row(made.key, made.title, 1.0, "ms", "") for made in NETWORKS]


class Told(Peer):
    """A peer whose answers have more fields for a row than its times."""

    facts: dict[str, dict[str, Any]]

    def take(self, row: Row, told: dict[str, Any]) -> None:
        """Keeps an answer."""
        own = {key: value for key, value in told.items() if key not in ("row", "seconds", "cpu")}
        self.__dict__.setdefault("facts", {})[row.key] = own
        super().take(row, told)

    def logged(self) -> str:
        """Its output besides its answers."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")


def commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """The commands that start the peers, and the one that exports networks."""
    folder, small = str(options.folder), ["small"] if options.small else []
    tensorflow = [options.tensorflow_python, str(HERE / "tensorflow_networks.py"), folder]
    size = "small" if options.small else "full"
    return {
        EXPORT: [options.tensorflow_python, str(HERE / "networks_export.py"), folder, size],
        OURS: [*tensorflow, "WGPU:0", *small],
        ORT: [options.onnxruntime_python, str(HERE / "onnxruntime_networks.py"), folder],
        CPU: [*tensorflow, "CPU:0", *small],
    }


def kept(peer: Told) -> dict[str, Any]:
    """The fields of a peer that the figures contain."""
    names = ("about", "refused", "errors", "samples", "told")
    return {name: getattr(peer, name) for name in names} | {"facts": getattr(peer, "facts", {})}


def measure(rows: list[Row], options: argparse.Namespace, environment: dict[str, str]) -> Peers:
    """Asks all peers for all networks, several times or until the time is over; the first round is
    never cut short.
    """
    end = time.monotonic() + options.seconds
    peers: dict[str, Told] = {}
    for name, command in commands(options).items():
        if name == EXPORT or not options.only or options.only.lower() in name.lower():
            print(name, file=sys.stderr, flush=True)
            peers[name] = Told(command, environment, None, options.patience)
            # The exported networks must exist before a peer looks into the folder.
            for row in rows if name == EXPORT else []:
                peers[name].ask(row)
            if name == EXPORT:
                peers[name].close()
    export = peers.pop(EXPORT)
    for number in range(options.rounds):
        for row in rows:
            if number and time.monotonic() > end:
                break
            for peer in peers.values():
                peer.ask(row)
            print(f"round {number + 1}: {row.key}", file=sys.stderr, flush=True)
    for peer in peers.values():
        peer.close()
    failed = {"samples": {}, "facts": {}} if export.refused or export.errors else None
    return {
        **({EXPORT: kept(export) | failed} if failed else {}),
        **{name: kept(peer) for name, peer in peers.items()},
    }


def first_steps(
    rows: list[Row], options: argparse.Namespace, environment: dict[str, str]
) -> tuple[dict[str, list[dict[str, Any]]], Peers]:
    """The facts of two processes for each network, of which the second finds a cache; and the last
    peer.
    """
    facts: dict[str, list[dict[str, Any]]] = {}
    peers: Peers = {}
    export = Told(commands(options)[EXPORT], environment, None, options.patience)
    for row in rows:
        export.ask(row)
        with tempfile.TemporaryDirectory() as cache:
            log = "tensorflow_wgpu::device::pipelines=trace"
            own = {"TF_WGPU_CACHE": f"{cache}/ours", "MESA_SHADER_CACHE_DIR": f"{cache}/mesa"}
            # NVIDIA's driver has a cache of its own.
            own |= {"__GL_SHADER_DISK_CACHE_PATH": cache, "TF_WGPU_LOG": log}
            for _ in range(2):
                command = [*commands(options)[OURS], "first"]
                peer = Told(command, {**environment, **own}, None, options.patience)
                peer.ask(row)
                peer.close()
                peers = {OURS: kept(peer)} if peer.about else {**peers, OURS: kept(peer)}
                told = peer.facts.get(row.key, {}) if hasattr(peer, "facts") else {}
                if "first" in told:
                    told["duplicates"] = dict(networks_report.duplicates(peer.logged()))
                    facts.setdefault(row.key, []).append(told)
        print(row.key, file=sys.stderr, flush=True)
    export.close()
    return facts, peers


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    for name in ("onnxruntime", "tensorflow"):
        parser.add_argument(
            f"--{name}-python",
            default=sys.executable,
            help="a Python that has it; this one without it",
        )
    parser.add_argument("--small", action="store_true", help="sizes for software adapters")
    parser.add_argument("--work", help="comma-separated networks, such as bert,lstm")
    parser.add_argument("--only", help="one peer by a part of its name, such as onnx")
    parser.add_argument("--driver", type=driver, help="the system's, or NAME=FOLDER")
    parser.add_argument("--folder", type=Path, help="where exported networks are; in target/")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")
    parser.add_argument(
        "--seconds", type=float, default=300, help="when no further round is begun or continued"
    )
    parser.add_argument(
        "--patience", type=float, default=300, help="seconds for one answer of a peer"
    )
    parser.add_argument(
        "--first-steps", action="store_true", help="what the first two steps take, ours alone"
    )
    parser.add_argument("--json", help="file for the figures")
    parser.add_argument("--markdown", help="file for the table")
    options = parser.parse_args()
    size = "small" if options.small else "full"
    options.folder = (options.folder or ROOT / "target" / "networks" / size).resolve()
    return options


def main() -> int:
    """Runs the peers. The exit code is 1 if none ran."""
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **(options.driver or ("system", {}))[1]}
    wanted = options.work.split(",") if options.work else [row.key for row in ROWS]
    rows = [row for row in ROWS if row.key in wanted]
    if options.first_steps:
        facts, peers = first_steps(rows, options, environment)
        parts, ran = [networks_report.first_steps(facts)], bool(facts)
    else:
        peers = measure(rows, options, environment)
        facts = {}
        parts = [networks_report.figures(peers, options.small), networks_report.on_cpu(peers)]
        ran = any(peer["samples"] for peer in peers.values())
    text = "\n\n".join(part for part in [*parts, notes({"": peers})] if part) + "\n"
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text, encoding="utf-8")
    if options.json:
        results = {
            "kind": "networks",
            "schema": 1,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
            "command": sys.argv,
            "small": options.small,
            "peers": peers,
            "first_steps": facts,
        }
        Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0 if ran else 1


if __name__ == "__main__":
    sys.exit(main())
