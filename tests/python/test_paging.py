"""`TF_WGPU_PAGING`: models that are larger than the device's memory, with equal numbers."""

import re

import pytest
from support import python

#: A model of weights of 4 MB: 34 MB, and 101 MB with Adam's state.
MODEL = """
    import keras
    import numpy as np
    import tensorflow as tf
    import tensorflow_wgpu

    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((1024,))]
        + [keras.layers.Dense(1024, activation="tanh") for _ in range(8)]
    )
"""

TRAINING = (
    MODEL
    + """
    model.compile(keras.optimizers.Adam(1e-3), "mse")
    x = np.random.default_rng(0).normal(size=(64, 1024)).astype("float32")
    print("losses", [v.hex() for v in model.fit(x, x, 16, 2, verbose=0).history["loss"]])
    print("weights", [float(tf.reduce_sum(w * w)).hex() for w in model.trainable_variables])

    step = tf.function(lambda token: model(token))
    token, tokens = x[:1], []
    for _ in range(8):
        token = step(token)
        tokens.append(float(tf.reduce_sum(token)).hex())
    print("tokens", tokens)
    sums = [float(np.sum(w, dtype="float64")).hex() for w in model.get_weights()]
    print("read", sums)
    info = tf.config.experimental.get_memory_info("WGPU:0")
    counts = tensorflow_wgpu.statistics()["WGPU:0"]
    print("figures", info["peak"], counts["paged_out"], counts["paged_in"], counts["paged"])
    """
)


@pytest.fixture(scope="module")
def unlimited() -> str:
    return run(TRAINING)


def run(program: str, **environment: str) -> str:
    done = python(program, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def results(text: str) -> list[str]:
    found = [line for line in text.splitlines() if re.match("losses|weights|tokens|read", line)]
    assert len(found) == 4, text
    return found


def figures(text: str) -> list[int]:
    (line,) = re.findall("^figures (.*)$", text, re.MULTILINE)
    return [int(n) for n in line.split()]


@pytest.mark.parametrize("capture", ["on", "off"])
def test_a_model_three_times_as_large_as_the_device_trains_and_generates_with_equal_bits(
    unlimited, capture
):
    paged = run(TRAINING, TF_WGPU_PAGING="2G", TF_WGPU_MAX_MEMORY="30M", TF_WGPU_CAPTURE=capture)
    assert results(paged) == results(unlimited)
    peak, out, back, away = figures(paged)
    assert peak <= 30 << 20
    # Each step moves most of the weights and of Adam's state.
    assert min(out, back) > 100 << 20
    assert away > 60 << 20
    peak, *moved = figures(unlimited)
    assert peak > 100 << 20
    assert moved == [0, 0, 0]


def test_weights_that_are_only_read_leave_without_copies():
    text = run(
        MODEL
        + """
    x = np.ones((1, 1024), "float32")
    run = tf.function(lambda x: model(x))
    run(x).numpy()
    run(x).numpy()
    before = tensorflow_wgpu.statistics()["WGPU:0"]
    for _ in range(5):
        run(x).numpy()
    after = tensorflow_wgpu.statistics()["WGPU:0"]
    print("figures", after["paged_out"] - before["paged_out"],
          after["paged_in"] - before["paged_in"])
    """,
        TF_WGPU_PAGING="2G",
        TF_WGPU_MAX_MEMORY="27M",
    )
    out, back = figures(text)
    assert out == 0
    assert back >= 5 * (4 << 20)


def test_more_than_both_memories_hold_is_an_error_and_later_work_goes_on():
    text = run(
        """
    import tensorflow as tf
    more = []
    kept = [tf.fill([1 << 20], float(k)) for k in range(16)]
    try:
        for _ in range(64):
            more.append(tf.fill([1 << 20], 1.0))
    except tf.errors.ResourceExhaustedError as error:
        print("refused", len(more), error)
    more.clear()
    print("again", float(tf.reduce_sum(tf.fill([1 << 20], 1.0))))
    print("sums", [float(tf.reduce_max(x)) for x in kept] == list(range(16)))
    """,
        TF_WGPU_PAGING="96M",
        TF_WGPU_MAX_MEMORY="32M",
    )
    # 32 tensors of 4 MB are 128 MB; small ones take some of it.
    assert "refused 15" in text, text
    assert "the largest tensors in its memory" in text
    assert "again 1048576.0" in text
    assert "sums True" in text


def test_get_memory_info_counts_device_memory_and_its_peak_begins_anew():
    text = run(
        """
    import tensorflow as tf
    info = lambda: tf.config.experimental.get_memory_info("WGPU:0")
    kept = tf.ones([1 << 20])
    dropped = tf.ones([1 << 20])
    (kept + dropped).numpy()
    del dropped
    tf.config.experimental.reset_memory_stats("WGPU:0")
    kept.numpy()
    print("figures", info()["current"], info()["peak"])
    for name in ("WGPU:7", "nonsense"):
        try:
            tf.config.experimental.get_memory_info(name)
        except ValueError:
            print("unknown")
    """,
        TF_WGPU_PAGING="1G",
    )
    current, peak = figures(text)
    assert 4 << 20 <= current < 5 << 20
    assert current <= peak < 13 << 20
    assert text.count("unknown") == 2
