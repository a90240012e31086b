"""The same work on every peer that is installed, as one table.

Peers are this project's kernels, ONNX Runtime WebGPU, burn, TensorFlow's CPU kernels, PyTorch on CUDA.

    cargo build --release --example kernels
    python benches/peers/run.py --onnxruntime-python /tmp/ort/bin/python --json peers.json

Each peer is a process of its own, one after the other, with a Python of its own where one is given. What is missing or
refuses is named below the table, with what to install; it never ends the run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from rows import ROWS, rate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Seconds after which a peer is given up: some tune themselves for minutes on a software adapter.
LIMIT = 900


def binaries(*names: str) -> Path:
    """The first of these files that exists, relative to the repository, or the first of all."""
    paths = [ROOT / name for name in names]
    return next((path for path in paths if path.exists()), paths[0])


def lines(command: list[str], limit: int) -> dict[str, Any]:
    """What a peer told: `about`, `refused`, and the seconds of its rows."""
    found: dict[str, Any] = {"about": None, "refused": None, "seconds": {}, "errors": {}}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
        text, code, log = ran.stdout, ran.returncode, ran.stderr
    except FileNotFoundError:
        return {**found, "refused": f"{command[0]} is not there"}
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        code, log = -1, f"not done after {limit} s"
    for line in text.splitlines():
        try:
            told = json.loads(line)
        except json.JSONDecodeError:
            continue
        if not isinstance(told, dict):
            continue
        if "seconds" in told:
            found["seconds"][told["row"]] = told["seconds"]
        elif "error" in told:
            found["errors"][told["row"]] = told["error"]
        else:
            found |= {key: told[key] for key in ("about", "refused") if key in told}
    if code and not found["refused"]:
        last = log.strip().splitlines()[-1:] or [""]
        found["refused"] = f"ended with {code}: {last[0]}"
    return found


def kernels(binary: Path, limit: int, quick: bool) -> dict[str, Any]:
    """Our own rows, from the kernels' benchmark."""
    found: dict[str, Any] = {"about": None, "refused": None, "seconds": {}, "errors": {}}
    if not binary.exists():
        return {**found, "refused": f"{binary} is not there: cargo build --release --example kernels"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.json"
        command = [str(binary), "--batch", "8", "--json", str(path), *(row.ours for row in ROWS)]
        try:
            ran = subprocess.run(
                [*command, "--quick"] if quick else command, capture_output=True, text=True, check=False, timeout=limit
            )
            problem = ran.stderr.strip().splitlines()[-1:] if ran.returncode else []
        except subprocess.TimeoutExpired:
            problem = [f"not done after {limit} s"]
        run = json.loads(path.read_text()) if path.exists() else {"rows": []}
    measured = {row["name"]: row for row in run["rows"]}
    for row in ROWS:
        ours = measured.get(row.ours, {})
        if "ms" in ours:
            found["seconds"][row.key] = ours["ms"] / 1e3
        elif "error" in ours:
            found["errors"][row.key] = ours["error"]
    if "adapter" in run:
        slow = "" if run["optimized"] else ", built without optimization"
        found["about"] = f"tensorflow-wgpu {run['versions']['tensorflow-wgpu']} on {run['adapter']['name']}{slow}"
        found["adapter"], found["peaks"] = run["adapter"], run["peaks"]
    if problem and not found["seconds"]:
        found["refused"] = problem[0]
    return found


def table(peers: dict[str, dict[str, Any]]) -> str:
    """Markdown: a row for each work, a column for each peer that ran."""
    shown = {name: peer for name, peer in peers.items() if peer["seconds"]}
    out = ["| Work | Unit | " + " | ".join(shown) + " |", "|" + "---|" * (len(shown) + 2)]
    for row in ROWS:
        cells = []
        for peer in shown.values():
            seconds = peer["seconds"].get(row.key)
            cells.append(f"{rate(row, seconds):.3g}" if seconds else "–")
        out.append(f"| {row.title} | {row.unit} | " + " | ".join(cells) + " |")
    out.append("")
    for name, peer in peers.items():
        if peer["about"]:
            out.append(f"- {name}: {peer['about']}")
        if peer["refused"]:
            out.append(f"- {name}: {peer['refused']}")
        out += [f"- {name}, {row}: {error}" for row, error in peer["errors"].items()]
    return "\n".join(out)


def main() -> int:
    """Runs the peers. The exit code is 1 when none ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=Path, help="the kernels' benchmark; the one in target/ without it")
    parser.add_argument("--burn", type=Path, help="the program of benches/peers/burn")
    for name in ("onnxruntime", "tensorflow", "pytorch"):
        parser.add_argument(
            f"--{name}-python", default=sys.executable, help="a Python that has it; this one without it"
        )
    parser.add_argument("--only", help="comma-separated peers, such as ours,burn")
    parser.add_argument("--limit", type=int, default=LIMIT, help="seconds for each peer")
    parser.add_argument("--quick", action="store_true", help="our own rows in one short batch each")
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    ours = options.kernels or binaries("target/release/examples/kernels", "target/debug/examples/kernels")
    burn = options.burn or binaries("benches/peers/burn/target/release/peer-burn")
    commands = {
        "TensorFlow CPU": [options.tensorflow_python, str(HERE / "tensorflow_cpu.py")],
        "ONNX Runtime WebGPU": [options.onnxruntime_python, str(HERE / "onnxruntime_webgpu.py")],
        "burn": [str(burn)],
        "PyTorch CUDA": [options.pytorch_python, str(HERE / "pytorch_cuda.py")],
    }
    wanted = options.only.lower().split(",") if options.only else None
    if wanted is None or any("ours".startswith(w) for w in wanted):
        print("ours", file=sys.stderr, flush=True)
        peers = {"ours": kernels(ours, options.limit, options.quick)}
    else:
        peers = {}
    for name, command in commands.items():
        if wanted is None or any(w in name.lower() for w in wanted):
            print(name, file=sys.stderr, flush=True)
            peers[name] = lines(command, options.limit)
            if name == "burn" and peers[name]["refused"] == f"{burn} is not there":
                peers[name]["refused"] += ": cargo build --release in benches/peers/burn"
    print(table(peers))
    if options.json:
        results = {
            "kind": "peers",
            "schema": 1,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "load": list(os.getloadavg()),
            "command": sys.argv,
            "rows": [row._asdict() for row in ROWS],
            "peers": peers,
        }
        Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0 if any(peer["seconds"] for peer in peers.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
