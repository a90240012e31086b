"""SavedModels in programs of other languages: in C with TensorFlow's own libraries, and with
TensorFlow's command line.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import support
import tensorflow as tf
import tensorflow_wgpu
from support import CPU, assert_close

ROOT = Path(__file__).parents[2]
TENSORFLOW = Path(tf.__file__).parent
LIBRARIES = ["libtensorflow_cc.so.2", "libtensorflow_framework.so.2"]
STEPS = 4

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="links as on Linux")


class Regression(tf.Module):
    """A small network with a signature that predicts, and one that performs a training step."""

    def __init__(self):
        rng = np.random.default_rng(7)
        self.hidden = tf.Variable(rng.normal(size=(4, 8)).astype("float32"))
        self.weights = tf.Variable(rng.normal(size=(8, 1)).astype("float32"))

    def call(self, x):
        """The network."""
        return tf.tanh(x @ self.hidden) @ self.weights

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def predict(self, x):
        """The served result."""
        return {"y": self.call(x)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 4], tf.float32, name="x"),
            tf.TensorSpec([None, 1], tf.float32, name="y"),
        ]
    )
    def train(self, x, y):
        """A step of gradient descent; returns the loss before it."""
        variables = [self.hidden, self.weights]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.call(x) - y) ** 2)
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.1 * gradient)
        return {"loss": loss}


@pytest.fixture(scope="module")
def data():
    """Inputs, and the values to learn from them."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(16, 4)).astype("float32")
    return x, np.sin(x.sum(axis=1, keepdims=True)).astype("float32")


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    """The folder of the model, and its results on the CPU."""
    x, y = data
    folder = tmp_path_factory.mktemp("model")
    with tf.device(CPU):
        module = Regression()
        signatures = {"serving_default": module.predict, "train": module.train}
        tf.saved_model.save(module, str(folder), signatures=signatures)
        predicted = module.predict(tf.constant(x))["y"].numpy()
        losses = [
            module.train(tf.constant(x), tf.constant(y))["loss"].numpy() for _ in range(STEPS)
        ]
    assert losses[-1] < 0.9 * losses[0]
    return folder, predicted, np.array(losses)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """examples/c, linked to the libraries of the installed TensorFlow."""
    compiler = support.program("cc")
    path = tmp_path_factory.mktemp("c") / "run_saved_model"
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o", path]
    command += [ROOT / "examples/c/run_saved_model.c", f"-I{TENSORFLOW / 'include'}"]
    command += [f"-L{TENSORFLOW}", *(f"-l:{name}" for name in LIBRARIES)]
    subprocess.run([*command, f"-Wl,-rpath,{TENSORFLOW}", "-ldl"], check=True)
    return path


def tensor_names(folder: Path, signature: str) -> tuple[dict[str, str], str]:
    """The inputs of a signature by their keys, and its only output, as `saved_model_cli show`
    lists them.
    """
    shown = command_line(
        "show", "--dir", folder, "--tag_set", "serve", "--signature_def", signature
    )
    inputs, outputs = shown.stdout.split("output(s)")
    names = re.findall(r"(?:inputs|outputs)\['(\w+)'\].*?name: (\S+)", inputs, re.DOTALL)
    return dict(names), re.search(r"name: (\S+)", outputs)[1]


def command_line(*arguments, **env: str) -> subprocess.CompletedProcess[str]:
    """TensorFlow's program saved_model_cli."""
    code = "from tensorflow.python.tools.saved_model_cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )


def run(program: Path, folder: Path, signature: str, runs: int, **feeds: np.ndarray):
    """Runs the program; returns its lines by their first words."""
    names, fetch = tensor_names(folder, signature)
    shapes = [f"{names[key]}={'x'.join(map(str, value.shape))}" for key, value in feeds.items()]
    values = " ".join(f"{v:.9g}" for value in feeds.values() for v in value.flat)
    ran = subprocess.run(
        [program, tensorflow_wgpu.library_path(), folder, str(runs), fetch, *shapes],
        input=values,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    lines: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        word, _, rest = line.partition(" ")
        lines.setdefault(word, []).append(rest)
    assert any(name.endswith("/device:WGPU:0") for name in lines["device"])
    (statistics,) = map(json.loads, lines["statistics"])
    return [np.array(r.split(), "float32") for r in lines["result"]], statistics["WGPU:0"]


def test_a_program_in_c_predicts(program, model, data):
    folder, predicted, _ = model
    (result,), statistics = run(program, folder, "serving_default", 1, x=data[0])
    assert_close(result, predicted.ravel())
    assert statistics["dispatches"] > 0


def test_a_program_in_c_trains(program, model, data):
    """Each run is a step: the loss of the next run depends on the variables that it saved."""
    folder, _, losses = model
    results, statistics = run(program, folder, "train", STEPS, x=data[0], y=data[1])
    assert_close(np.concatenate(results), losses)
    assert statistics["dispatches"] >= STEPS


def test_a_program_in_c_tells_what_is_wrong(program, model):
    ran = subprocess.run(
        [program, "nowhere.so", model[0], "1", "y:0", "x:0=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "run_saved_model: nowhere.so: " in ran.stderr


def test_the_command_line_runs_a_saved_model(model, data, tmp_path):
    folder, predicted, _ = model
    graphs = tmp_path / "graphs"
    np.save(tmp_path / "x.npy", data[0])
    command_line(
        "run", "--dir", folder, "--tag_set", "serve", "--signature_def", "serving_default",
        "--inputs", f"x={tmp_path / 'x.npy'}", "--outdir", tmp_path,
        TF_WGPU_DUMP=graphs,
    )  # fmt: skip
    assert_close(np.load(tmp_path / "y.npy"), predicted)
    # An op that only this device has.
    after = [f.read_text(encoding="utf-8") for f in graphs.glob("*/graphs/*_after.txt")]
    assert any("_WgpuFusedMatMul" in graph for graph in after)
