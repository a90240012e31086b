"""Values that a program computes on the CPU and on WGPU, in two processes, and how close they must
be.

Two devices add in a different order, so their results differ, and training makes small differences
larger. How much a program does so is measured: the CPU runs it again with each weight changed by at
most one unit in the last place of the type that the model computes in. A result that is right for
such a small change of the weights is as right as the CPU's. WGPU's result may be `FACTOR` times as
far from the CPU's as the farthest of these runs, in the Euclidean norm over all elements of a
value.
"""

import os
from pathlib import Path

import numpy as np

#: A disturbed run changes each weight once, whereas a device rounds in each layer.
FACTOR = 8.0
#: The number of disturbed runs on the CPU.
RUNS = 2
#: One unit in the last place of the number 1.
UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Disturbance:
    """Changes a model's weights by at most a unit in their last place, or not at all."""

    def __init__(self, unit: float, seed: int | None):
        self.unit = unit
        self.seed = seed

    def __call__(self, model) -> None:
        """Changes the weights of a Keras model."""
        if self.seed is None:
            return
        random = np.random.default_rng(self.seed)
        weights = model.get_weights()
        for i, weight in enumerate(weights):
            if np.issubdtype(weight.dtype, np.floating):
                change = random.uniform(-1, 1, weight.shape) * self.unit
                weights[i] = (weight * (1 + change)).astype(weight.dtype)
        model.set_weights(weights)


class Values:
    """The values of one case."""

    def __init__(self, file: Path, device: str):
        self.file = file
        self.device = device

    def compare(self, program, dtype: str = "float32") -> None:
        """Runs `program(disturbance)`, which returns named arrays. Floating-point numbers must be
        close, all else equal.
        """
        unit = UNITS[dtype]
        result = {k: np.asarray(v) for k, v in program(Disturbance(unit, None)).items()}
        for name, value in result.items():
            if np.issubdtype(value.dtype, np.floating):
                assert np.all(np.isfinite(value)), f"{name} is not finite"
        if self.device == "cpu":
            spread = {k: [] for k, v in result.items() if np.issubdtype(v.dtype, np.floating)}
            for seed in range(RUNS if spread else 0):
                disturbed = program(Disturbance(unit, seed))
                for name in spread:
                    spread[name].append(distance(np.asarray(disturbed[name]), result[name]))
            self.file.parent.mkdir(parents=True, exist_ok=True)
            spreads = {f"spread {k}": np.asarray(v) for k, v in spread.items()}
            np.savez(self.file, **result, **spreads)
            return
        with np.load(self.file) as cpu:
            wrong = [text for name in result if (text := difference(name, result[name], cpu, unit))]
        assert not wrong, "; ".join(wrong)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The Euclidean norm of the difference."""
    return float(np.linalg.norm((a.astype(np.float64) - b.astype(np.float64)).ravel()))


def difference(name: str, value: np.ndarray, cpu, unit: float) -> str:
    """Describes how a value differs from the CPU's by more than it may; empty if it does not."""
    expected = cpu[name]
    if value.shape != expected.shape or value.dtype != expected.dtype:
        return f"{name}: {value.dtype}{value.shape}, the CPU has {expected.dtype}{expected.shape}"
    if not np.issubdtype(value.dtype, np.floating):
        if np.array_equal(value, expected):
            return ""
        return f"{name}: {np.sum(value != expected)} of {value.size} differ"
    allowed = FACTOR * max(
        np.max(cpu[f"spread {name}"]), unit * float(np.linalg.norm(expected.astype(np.float64)))
    )
    off = distance(value, expected)
    if "PACKAGES_RATIOS" in os.environ:
        with open(os.environ["PACKAGES_RATIOS"], "a", encoding="utf-8") as ratios:
            ratios.write(f"{name} {FACTOR * off / allowed if allowed else 0.0:.3g}\n")
    if off <= allowed:
        return ""
    return f"{name}: off by {off:.3g}, allowed are {allowed:.3g}"
