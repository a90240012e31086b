"""Loops and branches: every program of a table, with its first and second gradients, under all
passes of the optimizer and under pairs of them.

The whole table of pairs takes hours: `TF_WGPU_LOOPS=all` runs it. Otherwise each pair of passes
runs with one of the cases, and all cases occur.
"""

import itertools
import os
import subprocess
import sys

import loops
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_wgpu._library import first_device

PASSES = [
    *("lists", "cleanup", "predicates", "stacks", "carried", "reads", "caches", "folding"),
    *("invariants", "sums", "low_rank", "attention", "cross_entropy", "recompute"),
    *("contraction", "quantized", "rowwise", "reduce", "update"),
    *("concat", "elementwise", "args", "linear_cross_entropy", "joined", "added"),
    *("biases", "arguments", "ends", "late"),
]
PAIRS = list(itertools.combinations(PASSES, 2))
WHOLE = os.environ.get("TF_WGPU_LOOPS") == "all"

# Combinations that TensorFlow itself does not support.
IMPOSSIBLE = {
    # The op of the gradient has no gradient.
    (loops.ragged_map, loops.second),
    # Its device, CUDA's too, has no ZerosLike of a RaggedTensorVariant.
    (loops.ragged_map, loops.gradient),
}
CASES = [
    (program, order)
    for program, order in itertools.product(loops.PROGRAMS, loops.ORDERS)
    if (program, order) not in IMPOSSIBLE
]
NAMES = [f"{program.__name__}-{order.__name__}" for program, order in CASES]

_wanted: dict[str, np.ndarray] = {}


def _arguments() -> list[np.ndarray]:
    generator = np.random.default_rng(5)
    x = generator.normal(size=[4, 6]).astype(np.float32)
    return [x, (generator.normal(size=[6, 6]) * 0.3).astype(np.float32)]


def _run(function, device: str) -> np.ndarray:
    arguments = _arguments()
    with tf.device(device):
        tensors = [tf.constant(a) for a in arguments]
        # Values that loops need on the host, such as a TensorArray's handle, may be there.
        tf.config.set_soft_device_placement(True)
        try:
            return tf.function(function, autograph=False)(*tensors).numpy()
        finally:
            tf.config.set_soft_device_placement(False)


def _compare(program, order, passes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = order(program)
    name = f"{program.__name__}-{order.__name__}"
    if name not in _wanted:
        _wanted[name] = _run(function, "CPU:0")
    monkeypatch.setenv("TF_WGPU_OPTIMIZER", passes)
    got = _run(function, first_device())
    want = _wanted[name]
    scale = np.abs(want).max()
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * max(scale, 1.0), err_msg=passes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("program", "order"), CASES, ids=NAMES)
def test_all_passes(program, order, monkeypatch):
    """The numbers are the CPU's."""
    _compare(program, order, "", monkeypatch)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("number", range(len(PAIRS)), ids=["+".join(pair) for pair in PAIRS])
def test_pairs(number, monkeypatch):
    """Two passes alone may leave nodes that other passes would have removed."""
    cases = CASES if WHOLE else [CASES[(number * 7 + 3) % len(CASES)]]
    for program, order in cases:
        _compare(program, order, ",".join(PAIRS[number]), monkeypatch)


def test_the_passes_are_the_optimizers():
    """A pass that this file does not list would be missing from the pairs."""
    code = (
        "import tensorflow as tf\n"
        f"with tf.device('{first_device()}'): tf.function(lambda: tf.ones([2]) + 1)()"
    )
    environment = dict(os.environ, TF_WGPU_OPTIMIZER="nonsense")
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    named = child.stderr.split("one of the passes ")[1].splitlines()[0]
    assert named.split(", ") == PASSES
