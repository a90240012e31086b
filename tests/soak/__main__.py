"""The soak test: two processes train on WGPU:0 for a given time, and what they hold must not grow.

    python tests/soak --minutes 60 --out soak-output

Afterwards the same rounds run on the CPU for a tenth of the time. TensorFlow itself grows when
functions are traced again and again; only growth beyond that is ours. Writes every figure to
soak.json, draws soak.png, and exits with 1 if anything grew.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import worker

# Counts that may not be larger in the last quarter than in the quarters before.
COUNTS = ["descriptors", "threads", "pipelines", "bind groups"]
# Bytes of resident memory per round by which a worker may exceed the CPU's growth.
GROWTH = 32 << 10
# Bytes of device memory that a round may keep: constants of the graphs that TensorFlow never frees,
# 256 bytes for each scalar.
DEVICE_GROWTH = 4 << 10
# Bind groups depend on TensorFlow's choice of addresses; a few more are no growth.
SLACK = {"bind groups": 1.1}


def start(seconds: float, device: str, seed: int, rounds: int, log: Path) -> subprocess.Popen:
    """A worker whose figures go to `log`."""
    arguments = ["--seconds", seconds, "--device", device, "--seed", seed, "--rounds", rounds]
    program = [sys.executable, Path(worker.__file__), *map(str, arguments)]
    env = {**os.environ, **({"TF_WGPU_VISIBLE_DEVICES": "-1"} if device == "CPU:0" else {})}
    return subprocess.Popen(
        program, env=env, stdout=log.open("w"), stderr=log.with_suffix(".err").open("w")
    )


def figures(log: Path) -> list[dict[str, float]]:
    """The rounds that a worker has finished."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def slope(rounds: list[dict[str, float]], key: str = "resident") -> float:
    """Bytes by which memory grows in a round: the median over pairs of rounds (Theil and Sen)."""
    points = [(r["round"], r[key]) for r in rounds]
    half = len(points) // 2
    # Pairs of rounds half the run apart distinguish growth from noise.
    return statistics.median(
        (y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in zip(points, points[half:])
    )


def settled(rounds: list[dict[str, float]]) -> list[dict[str, float]]:
    """The rounds after everything has been seen twice."""
    return rounds[2 * worker.CYCLE :]


def judge(name: str, rounds: list[dict[str, float]], baseline: float) -> list[str]:
    """The figures that grew in a worker's run."""
    rounds = settled(rounds)
    last = len(rounds) * 3 // 4
    grown = []
    for key in COUNTS:
        before, after = (max(r[key] for r in part) for part in (rounds[:last], rounds[last:]))
        print(
            f"  {key:14} first {rounds[0][key]:>14,}  highest {max(before, after):>14,}  last "
            f"{rounds[-1][key]:>14,}"
        )
        if after > before * SLACK.get(key, 1):
            grown.append(f"{name}: {key} grew from {before} to {after}")
    growth = slope(rounds)
    print(
        f"  resident       first {rounds[0]['resident']:>14,}  last {rounds[-1]['resident']:>14,}"
    )
    print(f"  resident by round {growth:,.0f} bytes, on the CPU {baseline:,.0f}")
    if growth > baseline + GROWTH:
        grown.append(
            f"{name}: memory grows by {growth:,.0f} bytes a round, on the CPU by {baseline:,.0f}"
        )
    device = slope(rounds, "device bytes")
    print(f"  device bytes by round {device:,.0f}")
    if device > DEVICE_GROWTH:
        grown.append(f"{name}: device memory grows by {device:,.0f} bytes a round")
    losses = [(r["first"], r["last"]) for r in rounds]
    if not statistics.mean(b for _, b in losses) < statistics.mean(a for a, _ in losses):
        grown.append(f"{name}: the models do not learn")
    return grown


def draw(runs: dict[str, list[dict[str, float]]], path: Path) -> None:
    """Every figure by round."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    keys = ["resident", "device bytes", *COUNTS]
    fig, axes = plt.subplots(
        len(keys), 1, figsize=(9, 2 * len(keys)), sharex=False, layout="constrained"
    )
    for ax, key in zip(axes, keys):
        for name, rounds in runs.items():
            if key in rounds[0]:
                ax.plot(
                    [r["round"] for r in rounds], [r[key] for r in rounds], label=name, linewidth=1
                )
        ax.set_ylabel(key)
    axes[0].legend()
    axes[-1].set_xlabel("round")
    fig.savefig(path, dpi=110)


def main() -> int:
    """Runs, waits, judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("soak-output"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    least = 4 * worker.CYCLE
    seconds = options.minutes * 60 * 0.9

    def run(names: dict[str, str], seconds: float) -> dict[str, list[dict[str, float]]]:
        """Runs workers at the same time, by name and device."""
        logs = {name: options.out / f"{name}.jsonl" for name in names}
        workers = [
            start(seconds, device, seed, least, logs[name])
            for seed, (name, device) in enumerate(names.items(), 1)
        ]
        while any(w.poll() is None for w in workers):
            time.sleep(1)
            if any(w.poll() not in (None, 0) for w in workers):
                for w in workers:
                    w.terminate()
                break
        for w, log in zip(workers, logs.values()):
            if w.wait() != 0:
                raise SystemExit(
                    f"{log.stem} ended with "
                    f"{w.returncode}:\n{log.with_suffix('.err').read_text()[-4000:]}"
                )
        return {name: figures(log) for name, log in logs.items()}

    runs = run({"wgpu 1": "WGPU:0", "wgpu 2": "WGPU:0"}, seconds)
    cpu = run({"cpu": "CPU:0"}, seconds / 9)
    baseline = slope(settled(cpu["cpu"]))
    grown = []
    for name, rounds in runs.items():
        print(f"{name}: {len(rounds)} rounds in {rounds[-1]['time'] - rounds[0]['time']:,.0f} s")
        grown += judge(name, rounds, baseline)
    (options.out / "soak.json").write_text(json.dumps({**runs, **cpu}))
    draw({**runs, **cpu}, options.out / "soak.png")
    print(*grown or ["nothing grew"], sep="\n")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
