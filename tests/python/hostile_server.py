"""Runs ops with hostile shape arguments; each line of its input is a number of one of `SUBJECTS`.

Before each call it prints `? op argument value`, so that a call that ends the process names itself, and after it
`= what came of it`. A line `.` ends the answers to a number.
"""

from __future__ import annotations

import functools
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from sweep.core import Types, case_of
from tensorflow.python.framework import kernels, op_def_registry

CPU, WGPU = "/device:CPU:0", "/device:WGPU:0"
VALUES = {
    tf.int32: [2**31 - 1, -(2**31), -1],
    tf.int64: [2**31 - 1, 2**40, 2**62, 2**63 - 1, -(2**63), -1],
}
ERRORS = (tf.errors.OpError, ValueError, TypeError, OverflowError)
# Where Python's name of an input is not the op's.
RENAMED = {"reduction_indices": "axis", "split_dim": "axis"}
# Results of more elements are not compared: the CPU may lack the memory.
LARGEST = 1 << 20


class Subject(NamedTuple):
    """An op with the types of its kernel, and its arguments in host memory."""

    op: str
    types: dict[str, tf.DType]
    host: set[str]


def subjects() -> list[Subject]:
    """One kernel of each op: of float32 where there is one, with the widest indices."""
    best: dict[str, tuple[tuple[int, int], Subject]] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type != "WGPU" or kernel.op.startswith("_") or not hasattr(tf.raw_ops, kernel.op):
            continue
        types = {c.name: tf.as_dtype(c.allowed_values.list.type[0]) for c in kernel.constraint}
        host = set(kernel.host_memory_arg) & {a.name for a in op_def_registry.get(kernel.op).input_arg}
        wide = sum(t == tf.int64 for name, t in types.items() if name != "T")
        rank = sum(t == tf.float32 for t in types.values()), wide
        if host and case_of(kernel.op, types) and best.get(kernel.op, ((-1, -1),))[0] < rank:
            best[kernel.op] = rank, Subject(kernel.op, types, host)
    return [subject for _, (_, subject) in sorted(best.items())]


SUBJECTS = subjects()


def hostile(subject: Subject) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """The first calls of the sweep, with each element of each argument in host memory replaced by each value."""
    op, types, host = subject
    build = case_of(op, types).build(Types(op, types, np.random.default_rng(zlib.crc32(op.encode()))))
    declared = {arg.name: arg for arg in op_def_registry.get(op).input_arg}
    for call in itertools.islice((c for c in build if isinstance(c, dict)), 2):
        for name in sorted(host):
            key = name if name in call else RENAMED.get(name)
            try:
                array = np.asarray(call[key])
            except (KeyError, ValueError):
                # A variable, or a list of tensors.
                continue
            if array.dtype.kind != "i" or array.size == 0:
                continue
            fixed = declared[name].type or types.get(declared[name].type_attr, tf.as_dtype(array.dtype))
            for place in sorted({0, array.size // 2, array.size - 1}):
                for value in VALUES.get(tf.as_dtype(fixed), []):
                    changed = array.astype(tf.as_dtype(fixed).as_numpy_dtype)
                    changed.flat[place] = value
                    yield name, value, {**call, key: changed}


def run(subject: Subject, call: dict[str, Any], device: str) -> list[np.ndarray]:
    """The results of a call."""

    def tensor(value: Any) -> Any:
        return [tensor(v) for v in value] if isinstance(value, (list, tuple)) else tf.constant(value)

    inputs = {arg.name for arg in op_def_registry.get(subject.op).input_arg}
    arrays = {k for k, v in call.items() if isinstance(v, np.ndarray)}
    with tf.device(device):
        given = {
            k: tf.constant(v) if k in arrays else tensor(v) if k in inputs and k not in subject.host else v
            for k, v in call.items()
        }
        result = getattr(tf.raw_ops, subject.op)(**given)
        return [t.numpy() for t in tf.nest.flatten(result) if isinstance(t, tf.Tensor)]


def outcome(subject: Subject, call: dict[str, Any]) -> str:
    """What came of a call, and whether the CPU gives the same."""
    try:
        got = run(subject, call, WGPU)
    except ERRORS as error:
        text = str(error).replace("\n", " ")
        return f"{'bad' if isinstance(error, tf.errors.InternalError) else 'error'} {type(error).__name__} {text[:400]}"
    shapes = [g.shape for g in got]
    if sum(g.size for g in got) > LARGEST:
        return f"result {shapes}"
    try:
        want = run(subject, call, CPU)
    except ERRORS as error:
        return f"cpu {type(error).__name__} where we give {shapes}: {str(error)[:300]!r}"
    same = [w.shape for w in want] == shapes and (
        "Random" in subject.op
        or "Multinomial" in subject.op
        or all(np.allclose(g, w, 1e-4, 1e-4, equal_nan=True) for g, w in zip(got, want))
    )
    return f"result {shapes}" if same else f"bad {shapes}, the CPU gives {[w.shape for w in want]}"


def lists() -> Iterator[tuple[str, str, int, Callable[[], Any]]]:
    """Calls of TensorList ops and of others that need handles."""
    raw = tf.raw_ops

    def made() -> tf.Tensor:
        return raw.TensorListFromTensor(tensor=tf.ones([3, 2]), element_shape=[2])

    def strided(value: int, name: str, dtype: tf.DType) -> None:
        variable = tf.Variable(tf.ones([4, 3]))
        given = {k: tf.constant([v, 1], dtype) for k, v in {"begin": 0, "end": 2, "strides": 1}.items()}
        given[name] = tf.constant([value, 1], dtype)
        masks = dict.fromkeys(["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"], 0)
        raw.ResourceStridedSliceAssign(ref=variable.handle, value=tf.zeros([2, 0]), **given, **masks)

    # Not the lengths of lists, nor what TensorListConcat and TensorListSplit get: those kernels are TensorFlow's own,
    # and end the process on the CPU too.
    for value in VALUES[tf.int32]:
        yield (
            "EmptyTensorList",
            "max_num_elements",
            value,
            lambda v=value: raw.EmptyTensorList(element_shape=[2], max_num_elements=v, element_dtype=tf.float32),
        )
        yield (
            "TensorListGetItem",
            "index",
            value,
            lambda v=value: raw.TensorListGetItem(
                input_handle=made(), index=v, element_shape=[2], element_dtype=tf.float32
            ),
        )
        yield (
            "TensorListSetItem",
            "index",
            value,
            lambda v=value: raw.TensorListSetItem(input_handle=made(), index=v, item=tf.ones([2])),
        )
        yield (
            "TensorListGather",
            "indices",
            value,
            lambda v=value: raw.TensorListGather(
                input_handle=made(), indices=[0, v], element_shape=[2], element_dtype=tf.float32
            ),
        )
    for value in VALUES[tf.int64]:
        wide = tf.constant([value], tf.int64)
        yield (
            "TensorListReserve",
            "element_shape",
            value,
            lambda w=wide: raw.TensorListStack(
                input_handle=raw.TensorListReserve(element_shape=w, num_elements=3, element_dtype=tf.float32),
                element_shape=w,
                element_dtype=tf.float32,
            ),
        )
        yield (
            "TensorListFromTensor",
            "element_shape",
            value,
            lambda w=wide: raw.TensorListFromTensor(tensor=tf.ones([3, 2]), element_shape=w),
        )
        yield (
            "TensorListStack",
            "element_shape",
            value,
            lambda w=wide: raw.TensorListStack(input_handle=made(), element_shape=w, element_dtype=tf.float32),
        )
        yield (
            "TensorListPopBack",
            "element_shape",
            value,
            lambda w=wide: raw.TensorListPopBack(input_handle=made(), element_shape=w, element_dtype=tf.float32),
        )
        generator = tf.random.Generator.from_seed(1)
        for dist in (raw.StatefulUniform, raw.StatefulStandardNormalV2, raw.StatefulTruncatedNormal):
            yield (
                "Stateful",
                "shape",
                value,
                lambda w=wide, dist=dist, g=generator: dist(
                    resource=g.state.handle, algorithm=tf.constant(1, tf.int64), shape=tf.concat([w, [3]], 0)
                ),
            )
        yield (
            "RngReadAndSkip",
            "delta",
            value,
            lambda v=value, g=generator: raw.RngReadAndSkip(
                resource=g.state.handle, alg=1, delta=tf.constant(v % 2**64, tf.uint64)
            ),
        )
        for name in ("begin", "end", "strides"):
            yield "ResourceStridedSliceAssign", name, value, lambda v=value, n=name: strided(v, n, tf.int64)


def play(op: str, name: str, value: int, what: Callable[[], str]) -> None:
    """One call with its two lines."""
    print("?", op, name, value, flush=True)
    print("=", what(), flush=True)


def of_lists(fn: Callable[[], Any]) -> str:
    """What came of a call of `lists`; the CPU's results are not compared."""
    try:
        with tf.device(WGPU):
            result = fn()
            return f"result {[t.shape.as_list() for t in tf.nest.flatten(result) if isinstance(t, tf.Tensor)]}"
    except ERRORS as error:
        word = "bad" if isinstance(error, tf.errors.InternalError) else "error"
        return f"{word} {type(error).__name__} {str(error)[:400]!r}"


def main() -> None:
    """Answers lines; after each of them the device must still compute."""
    tf.config.set_soft_device_placement(False)
    for line in sys.stdin:
        number = int(line)
        if number == len(SUBJECTS):
            with tf.device(WGPU):
                calls = list(lists())
            for op, name, value, fn in calls:
                play(op, name, value, functools.partial(of_lists, fn))
        else:
            subject = SUBJECTS[number]
            for name, value, call in hostile(subject):
                play(subject.op, name, value, functools.partial(outcome, subject, call))
        with tf.device(WGPU):
            assert tf.reduce_sum(tf.ones([7, 3]) * 2.0).numpy() == 42.0
        print(".", flush=True)


if __name__ == "__main__":
    main()
