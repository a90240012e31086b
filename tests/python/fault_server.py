"""A process whose Vulkan calls fail as its input demands: one training for each line `function
first last result`.

The fault layer (tests/fault_layer) makes calls `first` to `last` of the function return the result.
The answer is a line `= word calls text`; the word is `none` if no call failed, `right`, `error`,
`lost`, or `bad` for an outcome that must not happen. The first line comes before TensorFlow is
imported, so that calls are counted from the start of the process.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import sys
import traceback

layer = ctypes.CDLL(os.environ["TF_WGPU_FAULT_LAYER"])
layer.fault_layer_arm.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32]
layer.fault_layer_calls.argtypes = [ctypes.c_char_p]
layer.fault_layer_calls.restype = ctypes.c_int64
layer.fault_layer_name.argtypes = [ctypes.c_uint64]
layer.fault_layer_name.restype = ctypes.c_char_p
layer.fault_layer_injected.restype = ctypes.c_uint64

WGPU = "/device:WGPU:0"
CPU = "/device:CPU:0"
STEPS = 3
# The number of trainings within which a device that is not lost must be right again: the first one
# may raise an earlier error that was not reported yet.
ATTEMPTS = 2


def arm(line: str) -> bytes:
    """Arms the fault of a line and returns its function."""
    function, first, last, result = line.split()
    if layer.fault_layer_arm(function.encode(), int(first), int(last), int(result)) != 0:
        sys.exit(f"the layer does not know {function}")
    return function.encode()


class Training:
    """A small network with momentum, trained by a tf.function, and eager ops beside it."""

    def __init__(self, device: str) -> None:
        rng = np.random.default_rng(7)
        shapes = [(20, 16), (16,), (16, 5), (5,)]
        self.device = device
        self.initial = [rng.normal(size=s).astype("float32") * 0.3 for s in shapes]
        self.x = rng.normal(size=(STEPS, 32, 20)).astype("float32")
        self.y = rng.integers(0, 5, size=(STEPS, 32)).astype("int64")
        self.large = rng.integers(0, 255, size=(1031, 3001)).astype("uint8")
        self.kept_value = rng.normal(size=(700,)).astype("float32")
        with tf.device(device):
            self.kept = tf.constant(self.kept_value) * 1.0
            self.weights = [tf.Variable(i) for i in self.initial]
            self.slots = [tf.Variable(tf.zeros(s)) for s in shapes]
        self.step = tf.function(self._step)

    def _step(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(x @ self.weights[0] + self.weights[1])
            logits = hidden @ self.weights[2] + self.weights[3]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        for w, s, g in zip(self.weights, self.slots, tape.gradient(loss, self.weights)):
            s.assign(0.9 * s + g)
            w.assign_sub(0.1 * s)
        return loss

    def run(self) -> list[np.ndarray]:
        """Trains from the start and returns all numbers."""
        with tf.device(self.device):
            for w, s, i in zip(self.weights, self.slots, self.initial):
                w.assign(i)
                s.assign(tf.zeros_like(s))
            losses = [
                self.step(tf.constant(x), tf.constant(y)).numpy() for x, y in zip(self.x, self.y)
            ]
            large = tf.transpose(tf.cast(tf.constant(self.large), tf.float32) * 0.5)
            sums = tf.reduce_sum(large, axis=0)
            parts = tf.concat([sums[3:10], self.kept[1:5]], axis=0)
            return [
                *losses,
                *(v.numpy() for v in self.weights + self.slots),
                large.numpy(),
                sums.numpy(),
                parts.numpy(),
            ]

    def check(self, numbers: list[np.ndarray], want: list[np.ndarray]) -> None:
        """Compares with the numbers of the CPU."""
        for got, expected in zip(numbers, want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def counts() -> str:
    """The calls of every function so far, as JSON."""
    names = (layer.fault_layer_name(i) for i in itertools.count())
    return json.dumps(
        {n.decode(): layer.fault_layer_calls(n) for n in itertools.takewhile(bool, names)}
    )


def is_lost(error: Exception) -> bool:
    """Whether an error reports the loss of the device, with the advice."""
    # TensorFlow's executor turns some errors into InternalError, and says so.
    return (
        (
            isinstance(error, tf.errors.UnavailableError)
            or "originally returned UnavailableError" in str(error)
        )
        and "lost" in str(error)
        and "restart" in str(error)
    )


def is_exhausted(error: Exception) -> bool:
    """Whether an error reports exhausted memory."""
    # TensorFlow's words if it gets no memory for a copy.
    no_target = "Dst tensor is not initialized" in str(error)
    return no_target or isinstance(error, tf.errors.ResourceExhaustedError)


def is_marked(numbers: list[np.ndarray]) -> bool:
    """Whether a copy to the host failed: it leaves NaN, and an error for the next call."""
    return any(np.isnan(value).all() for value in numbers)


def text_of(error: Exception) -> str:
    """The error in one line."""
    return f"{type(error).__name__}: {error}".replace("\n", " ")[:600]


def check_lost() -> None:
    """Every use of a lost device is an error that says so; the CPU works."""
    uses = {
        "a constant": lambda: tf.constant(np.arange(5, dtype="float32")) + 1.0,
        "a fill": lambda: tf.zeros([1000, 10]) + 1.0,
        "a product": lambda: tf.matmul(tf.ones([4, 4]), tf.ones([4, 4])),
        "a variable": lambda: tf.Variable(np.ones([3], "float32")) + 1.0,
        "a function": lambda: tf.function(lambda x: tf.sin(x) * 2.0)(np.ones([8], "float32")),
    }
    for name, use in uses.items():
        try:
            with tf.device(WGPU):
                value = use().numpy()
        except tf.errors.OpError as e:
            if not is_lost(e):
                raise AssertionError(f"{name} on a lost device: {text_of(e)}") from e
        else:
            raise AssertionError(f"{name} on a lost device is {value}")
    with tf.device(CPU):
        assert float(tf.reduce_sum(tf.constant([1.0, 2.0]))) == 3.0


class Server:
    """Answers the lines of the input."""

    def __init__(self) -> None:
        self.training: Training | None = None
        self.want: list[np.ndarray] | None = None

    def reference(self) -> list[np.ndarray]:
        """The numbers of the CPU. No fault may be armed."""
        if self.want is None:
            self.want = Training(CPU).run()
        return self.want

    def train(self) -> list[np.ndarray]:
        """One training on WGPU."""
        if self.training is None:
            self.training = Training(WGPU)
        return self.training.run()

    def checked(self) -> None:
        """One training on WGPU, whose numbers are compared with the CPU's."""
        numbers = self.train()
        self.training.check(numbers, self.reference())

    def attempt(self) -> tuple[str, str]:
        """The outcome of a training under the armed fault."""
        numbers, error = None, None
        try:
            numbers = self.train()
        except (tf.errors.OpError, ValueError) as e:
            error = e
        layer.fault_layer_disarm()
        made = counts()
        injected = layer.fault_layer_injected() > 0
        if not tf.config.list_logical_devices("WGPU"):
            # The fault occurred while the device was opened. One line in the log says so, and
            # nothing runs on it.
            return (
                ("error", f"no device: {text_of(error)}")
                if injected and error
                else ("bad", "no device")
            )
        marked = injected and numbers is not None and is_marked(numbers)
        if numbers is not None and not marked:
            self.training.check(numbers, self.reference())
        if not injected:
            return (
                ("none", made)
                if error is None
                else ("bad", f"an error without a fault: {text_of(error)}")
            )
        word, text = ("error", "a copy to the host failed") if marked else ("right", "")
        if error is not None:
            text = text_of(error)
            word = "lost" if is_lost(error) else "error"
            # TensorFlow's own words for a failed wait; ours are in the log, and in the next error.
            waited = "SyncAll failed" in text
            if word == "error" and not waited and not is_exhausted(error):
                return "bad", f"neither lost nor exhausted: {text}"
        for attempt in range(ATTEMPTS):
            try:
                self.checked()
                if marked and attempt == 0:
                    return "bad", "a copy failed, and no call said so"
                return word, text
            except tf.errors.OpError as e:
                if is_lost(e):
                    check_lost()
                    return "lost", text or text_of(e)
                if attempt + 1 == ATTEMPTS:
                    return (
                        "bad",
                        f"training {ATTEMPTS} after the fault: {text_of(e)} (after {text!r})",
                    )
        raise AssertionError("one of the attempts returns")

    def serve(self, function: bytes) -> None:
        """Answers a line whose fault is armed."""
        try:
            word, text = self.attempt()
        except Exception as e:
            word, text = "bad", text_of(e) + " " + traceback.format_exc()[-800:]
        finally:
            layer.fault_layer_disarm()
        calls = layer.fault_layer_calls(function)
        print("=", word, calls, text.replace("\n", " "), flush=True)


if __name__ == "__main__":
    lines = iter(sys.stdin.readline, "")
    armed = arm(next(lines))

    import numpy as np
    import tensorflow as tf

    tf.config.set_soft_device_placement(False)
    server = Server()
    server.serve(armed)
    for line in lines:
        server.serve(arm(line))
