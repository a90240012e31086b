"""`tf.data.experimental.prefetch_to_device` and `copy_to_device`: elements of a dataset wait on the
device, in whatever way they are iterated over, and are freed when they can no longer be requested.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, DEVICE, WGPU, assert_close, python
from tensorflow_wgpu import _own_ops, _parked

prefetch, copy = tf.data.experimental.prefetch_to_device, tf.data.experimental.copy_to_device
WAYS = {
    "prefetch": prefetch,
    "copy": copy,
    "from": lambda device: copy(device, source_device="/CPU:0"),
    "two": lambda device: prefetch(device, 2),
}
MIB = 1 << 20


def rows(count: int, elements: int = 4) -> tf.data.Dataset:
    """Tensors whose elements are their number."""
    return tf.data.Dataset.range(count).map(lambda i: tf.fill([elements], tf.cast(i, tf.float32)))


def firsts(dataset: tf.data.Dataset) -> list[float]:
    return [float(row[0]) for row in dataset]


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether the condition holds within a while: datasets end in separate threads."""
    end = time.monotonic() + 20
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.01)
    return held


def in_use() -> int:
    gc.collect()
    return tf.config.experimental.get_memory_info(DEVICE)["current"]


@pytest.mark.parametrize("name", [DEVICE, f"/{DEVICE}", WGPU, "full"])
@pytest.mark.parametrize("way", WAYS)
def test_elements_are_on_the_device_in_order(way: str, name: str):
    name = tf.config.list_logical_devices("WGPU")[0].name if name == "full" else name
    found = list(rows(7).batch(2).apply(WAYS[way](name)))
    assert [row.shape for row in found] == [(2, 4)] * 3 + [(1, 4)]
    assert all(row.device.endswith(WGPU) for row in found)
    assert np.concatenate(found)[:, 0].tolist() == list(range(7))


@pytest.mark.parametrize("dtype", sorted(_parked.types(), key=lambda t: t.name))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3)])
def test_every_type_and_shape(dtype: tf.DType, shape: tuple[int, ...]):
    with tf.device(CPU):
        values = tf.cast(np.arange(2 * np.prod(shape, dtype=int)).reshape((2, *shape)) % 2, dtype)
        dataset = tf.data.Dataset.from_tensor_slices(values)
    found = list(dataset.apply(prefetch(DEVICE)))
    assert len(found) == 2
    for row, value in zip(found, values):
        assert row.device.endswith(WGPU)
        assert_close(row.numpy(), value.numpy())


def test_structures_keep_their_form_and_strings_stay_on_the_host():
    parts = {"x": np.arange(6.0), "name": [str(i) for i in range(6)]}
    whole = tf.data.Dataset.from_tensor_slices((parts, np.arange(6, dtype=np.int32)))
    ragged = tf.data.Dataset.range(6).map(lambda i: tf.ragged.range([i, 2]))
    dataset = tf.data.Dataset.zip(whole, ragged).batch(2).apply(prefetch(DEVICE))
    ((inputs, label), lines) = next(iter(dataset))
    assert inputs["x"].device.endswith(WGPU)
    assert label.device.endswith(WGPU)
    assert inputs["x"].numpy().tolist() == [0, 1]
    assert label.numpy().tolist() == [0, 1]
    assert inputs["name"].device.endswith(CPU)
    assert inputs["name"].numpy().tolist() == [b"0", b"1"]
    assert lines.to_list() == [[[], [0, 1]], [[0], [0, 1]]]


def test_functions_take_datasets_and_iterators():
    dataset = rows(4).apply(prefetch(DEVICE))

    @tf.function
    def total(elements: tf.data.Dataset) -> tf.Tensor:
        result = tf.zeros([])
        for row in elements:
            result += tf.reduce_sum(row)
        return result

    @tf.function
    def following(iterator: tf.data.Iterator) -> tf.Tensor:
        row = next(iterator)
        assert row.shape == [4]
        return row * 2.0

    with tf.device(WGPU):
        assert total(dataset).numpy() == 24
        iterator = iter(dataset)
        found = [following(iterator) for _ in range(4)]
    assert all(row.device.endswith(WGPU) for row in found)
    assert [float(row[0]) for row in found] == [0, 2, 4, 6]
    with pytest.raises(tf.errors.OutOfRangeError):
        following(iterator)


def test_gradients_of_what_elements_are_used_for():
    x = next(iter(rows(3).skip(2).apply(prefetch(DEVICE))))
    with tf.device(WGPU), tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(x * x)
        assert tape.gradient(y, x).numpy().tolist() == [4.0] * 4


@pytest.fixture
def soft_placement():
    """The default of users."""
    tf.config.set_soft_device_placement(True)
    yield
    tf.config.set_soft_device_placement(False)


@pytest.mark.usefixtures("soft_placement")
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("steps", [1, 3])
def test_keras_trains_as_without(package: str, steps: int, rng):
    """With several steps in a call, elements pass through optionals."""
    keras = pytest.importorskip(package)
    x = rng.normal(size=(50, 8)).astype("float32")
    y = (x.sum(1) > 0).astype("int32")
    found = []
    for way in (None, prefetch(DEVICE)):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"], steps_per_execution=steps)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(12)
        dataset = dataset.apply(way) if way else dataset
        fit = model.fit(dataset, epochs=2, class_weight={0: 1.0, 1: 2.0}, verbose=0)
        told = model.evaluate(dataset, verbose=0), model.predict(dataset, verbose=0).tolist()
        found.append((fit.history, *told))
    assert found[0] == found[1]


def test_optionals_hold_elements():
    @tf.function
    def total(iterator: tf.data.Iterator) -> tf.Tensor:
        result, more = tf.zeros([]), tf.constant(True)
        while more:
            element = iterator.get_next_as_optional()
            more = element.has_value()
            if more:
                result += tf.reduce_sum(element.get_value())
        return result

    dataset = rows(5).apply(prefetch(DEVICE))
    for device in (None, CPU):
        with tf.device(device):
            assert total(iter(dataset)).numpy() == 40
    optional = iter(dataset).get_next_as_optional()
    assert optional.get_value().device.endswith(WGPU)


def test_take_skip_repeat_prefetch_shuffle_and_cache_may_follow():
    dataset = rows(4).apply(copy(DEVICE))
    assert firsts(dataset.take(2)) == [0, 1]
    assert firsts(dataset.skip(3)) == [3]
    assert firsts(dataset.repeat(2)) == [0, 1, 2, 3] * 2
    assert firsts(dataset.prefetch(3)) == [0, 1, 2, 3]
    assert sorted(firsts(dataset.shuffle(4))) == [0, 1, 2, 3]
    cached = dataset.cache()
    assert firsts(cached) == firsts(cached) == [0, 1, 2, 3]


def test_a_map_that_follows_computes_on_the_device():
    dataset = rows(3).apply(copy(DEVICE))

    def twice(row: tf.Tensor) -> tf.Tensor:
        with tf.device(WGPU):
            return row * 2.0

    assert firsts(dataset.map(twice)) == [0, 2, 4]


@pytest.mark.parametrize(
    "after",
    [
        lambda dataset: dataset.batch(2),
        lambda dataset: dataset.rebatch(2),
        lambda dataset: dataset.unbatch(),
        lambda dataset: dataset.window(2).flat_map(lambda part: part.batch(2)),
    ],
    ids=["batch", "rebatch", "unbatch", "window"],
)
def test_what_cannot_follow_says_so(after: Callable[[tf.data.Dataset], tf.data.Dataset]):
    dataset = rows(4).apply(prefetch(DEVICE))
    with pytest.raises(TypeError, match="must be the last transformation"):
        after(dataset)


def test_an_iterator_that_is_saved(tmp_path):
    checkpoint = tf.train.Checkpoint(iterator=iter(rows(4).apply(prefetch(DEVICE))))
    with pytest.raises(tf.errors.FailedPreconditionError, match="_WgpuPark is stateful"):
        checkpoint.write(tmp_path / "iterator")


def test_elements_that_nobody_took_are_freed():
    before = in_use()
    iterator = iter(rows(100, MIB // 4).apply(prefetch(DEVICE, 4)))
    assert next(iterator)[0] == 0
    assert eventually(lambda: in_use() >= before + 4 * MIB)
    # Four in the buffer, and one that does not fit into it yet.
    assert in_use() < before + 7 * MIB
    del iterator
    assert eventually(lambda: in_use() <= before + MIB // 2)


def test_elements_that_were_taken_are_freed():
    before = in_use()
    for number, row in enumerate(rows(30, MIB // 4).apply(prefetch(DEVICE, 2))):
        assert row[0] == number
        assert in_use() < before + 7 * MIB
    del row
    assert eventually(lambda: in_use() <= before + MIB // 2)


def taken(ticket, dtype):
    return _own_ops.call(_parked.PARKED, {"ticket": ticket}, dtype)[0]


def test_a_ticket_of_another_process_is_no_tensor_of_this_one(tmp_path):
    """A file that `cache` has written holds tickets, which are meaningless to the next process."""
    code = f"""
        import tensorflow as tf
        made = tf.data.Dataset.from_tensor_slices(tf.fill([4, 8], {{first}}))
        made = made.apply(tf.data.experimental.prefetch_to_device("WGPU:0"))
        other = iter(made)
        held = [next(other) for _ in range(2)]
        try:
            for row in made.cache(r"{tmp_path / "cached"}"):
                assert float(row[0]) == {{first}}, row
        except tf.errors.NotFoundError as e:
            assert "no longer on the device" in e.message and "cache(filename)" in e.message, e
            print("refused")
        else:
            print("served")
    """
    assert "served" in python(code.format(first=1.0)).stdout
    done = python(code.format(first=2.0))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.strip() == "refused"


def test_tickets_that_are_none():
    with tf.device(WGPU):
        with pytest.raises(tf.errors.NotFoundError, match="no longer on the device"):
            taken(tf.constant("0123456789abcdef"), tf.float32)
        (ticket,) = _own_ops.call(_parked.PARK, {"value": tf.ones([3])}, tf.float32)
        with pytest.raises(tf.errors.InvalidArgumentError, match="a float32 tensor waits"):
            taken(ticket, tf.float64)
        # Nothing is lost by it.
        assert taken(ticket, tf.float32).numpy().tolist() == [1, 1, 1]
        number = tf.constant(ticket.numpy())
        del ticket
        with pytest.raises(tf.errors.NotFoundError, match="must be the last transformation"):
            taken(number, tf.float32)
        with pytest.raises(tf.errors.InvalidArgumentError, match="ticket must be a scalar string"):
            taken(tf.constant(["a", "b"]), tf.float32)


def test_a_device_that_is_not_there():
    with pytest.raises(tf.errors.InvalidArgumentError, match="WGPU:77"):
        list(rows(2).apply(prefetch("WGPU:77")))


def test_other_devices_are_tensorflows():
    assert firsts(rows(3).apply(prefetch("/cpu:0"))) == [0, 1, 2]
