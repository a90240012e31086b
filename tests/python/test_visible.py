"""`tf.config.set_visible_devices` and `set_memory_growth` for our devices."""

import pytest
import tensorflow as tf
from clusters import TWO
from support import python
from tensorflow_wgpu._library import device_type

PRELUDE = """
import numpy as np, tensorflow as tf, tensorflow_wgpu
from tensorflow_wgpu import _placement
from tensorflow_wgpu._library import device_type
kind = device_type()
devices = tf.config.list_physical_devices(kind)
"""


def told(code: str) -> tuple[list[str], str]:
    """The lines that a program with two devices prints, and its stderr."""
    ran = python(PRELUDE + code, **TWO)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout.splitlines(), ran.stderr


def test_all_devices_are_hidden():
    """The program runs on the CPU, XLA included, as on a machine without a GPU."""
    lines, _ = told(
        """
tf.config.set_visible_devices([], kind)
print(tf.config.get_visible_devices(kind), tf.config.list_logical_devices(kind))
x = tf.ones(3)
print(x.device[-5:], _placement.has_wgpu(), _placement.runs_on())
f = tf.function(lambda x: x * 2, jit_compile=True)
print(f(x).device[-5:], f.get_concrete_function(x).function_def.attr["_XlaMustCompile"].b)
with tf.device(f"/{kind}:0"):
    print(f(x).device[-5:])
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    print([d.device_type for d in session.list_devices()])
print(tf.distribute.MirroredStrategy().extended.worker_devices)
model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((4, 2)), np.ones(4), verbose=0)
print(sum(counts["dispatches"] for counts in tensorflow_wgpu.statistics().values()))
"""
    )
    assert lines == [
        "[] []",
        "CPU:0 False False",
        "CPU:0 True",
        "CPU:0",
        "['CPU']",
        "('/job:localhost/replica:0/task:0/device:CPU:0',)",
        "0",
    ]


def test_one_of_two_is_visible_and_memory_grows():
    lines, errors = told(
        """
for device in devices[:1] * 2:
    tf.config.experimental.set_memory_growth(device, False)
tf.config.experimental.set_memory_growth(devices[1], True)
print([tf.config.experimental.get_memory_growth(device) for device in devices])
tf.config.set_visible_devices(devices[1], kind)
print(len(tf.config.list_logical_devices(kind)), _placement.runs_on())
print((tf.ones(3) * 2.0).numpy().tolist())
counts = tensorflow_wgpu.statistics()
print(counts[f"{kind}:0"]["dispatches"], counts[f"{kind}:1"]["dispatches"] > 0)
print(tf.config.experimental.get_memory_info(f"{kind}:0")["peak"] < 1 << 20)
tf.config.experimental.set_memory_growth(devices[1], False)
try:
    tf.config.set_visible_devices([], kind)
except RuntimeError as e:
    print(e)
"""
    )
    assert lines == [
        "[True, True]",
        "1 True",
        "[2.0, 2.0, 2.0]",
        "0 True",
        "True",
        "Visible devices cannot be modified after being initialized",
    ]
    for index in range(2):
        said = f"set_memory_growth(/physical_device:{device_type()}:{index}, False) changes nothing"
        assert errors.count(said) == 1, errors


def test_other_devices_are_tensorflows():
    with pytest.raises(ValueError, match="Unrecognized device"):
        tf.config.experimental.set_memory_growth("WGPU:0", False)
    with pytest.raises(ValueError, match="non-GPU and non-Pluggable"):
        tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("CPU")[0], True)
