"""Gives every kernel's host arguments (shapes, sizes, axes, indices) values that no tensor can
have.

`python tests/python/hostile.py PART PARTS FIRST [OP,OP]` runs the part's tries from number FIRST on
and prints a line before each, because a failed CHECK ends the process and only the last line tells
which try that was. `test_hostile_shapes.py` starts it again behind such a try.

TensorFlow's registry lists these arguments. The ops' other arguments are those of the sweep's
cases. If a case is a program, the op's first call in it gets the hostile argument.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import conftest
import numpy as np
import tensorflow as tf
from support import CPU, WGPU
from sweep.core import Program, Types, case_of
from tensorflow.python import pywrap_tfe
from tensorflow.python.framework import kernels, op_def_registry

#: The values of an int64 argument; an int32 one gets the values that fit.
VALUES = (2**31 - 1, 2**40, 2**62, 2**63 - 1, -1, -(2**31), -(2**62))
#: Host arguments that do not describe shapes: operands on the host, values, seeds.
OPERANDS = {
    "constant_values",
    "default_value",
    "dy",
    "fill_value",
    "input",
    "input_max",
    "input_min",
    "iou_threshold",
    "max",
    "maxval",
    "min",
    "minval",
    "padding_value",
    "score_threshold",
    "seed",
    "t",
    "clip_value_max",
    "clip_value_min",
    "tensor",
    "update",
    "value",
    "value_range",
    "values",
    "x",
}
#: The operands whose elements become the result's elements.
MOVED = {"dy", "input", "tensor", "update", "value", "values", "x"}
#: Arguments whose float values determine the size of the result.
FLOATS = {("Range", "start"), ("Range", "limit"), ("Range", "delta")}
#: The errors that bad arguments may raise.
ERRORS = (
    tf.errors.InvalidArgumentError,
    tf.errors.ResourceExhaustedError,
    tf.errors.OutOfRangeError,
    tf.errors.UnimplementedError,
)
#: Ops whose results differ from the CPU's; only their shapes are compared.
UNLIKE = {
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "StatelessParameterizedTruncatedNormal",
    "TruncatedNormal",
    "Empty",
}
#: Ops that the sweep does not call in eager mode or with elements, with the reason why they need no
#: try.
EXEMPT = {
    "BatchMatrixBandPart": "only old graphs have it; the kernel is MatrixBandPart's",
    "CudnnRNNBackpropV2": "its only host argument is host_reserved, which is empty and not read",
    "StridedSliceAssign": "graphs alone have it; the kernel is ResourceStridedSliceAssign's",
    "StochasticCastToInt": "its only host argument is the number of the algorithm",
}
#: Legal values that the CPU handles wrongly, with the reason; results are not compared.
CPU_IS_WRONG = {
    ("CTCLoss", "labels_values"): "reads beyond its memory where all labels are blanks",
    ("Roll", "shift"): "truncates shifts to 32 bits",
    ("RngReadAndSkip", "delta"): "loses a carry between the counter's words",
    ("RngSkip", "delta"): "loses a carry between the counter's words",
    ("SparseSlice", "size"): "adds start and size with an overflow, and finds nothing",
    ("SparseSplit", "shape"): "truncates extents to 32 bits",
}
#: The number of calls of each case that are used, and the number of elements of an argument that
#: are set one at a time.
CALLS, ELEMENTS = 2, 4


@dataclass(frozen=True)
class Kernel:
    """A registered kernel and its host arguments that are sizes or indices."""

    op: str
    types: dict[str, tf.DType]
    arguments: tuple[str, ...]
    #: Whether its operands are on the host too, so that its results use the computer's memory.
    on_host: bool

    def __str__(self) -> str:
        return "-".join([self.op, *(f"{k}:{v.name}" for k, v in sorted(self.types.items()))])


def registered() -> list[Kernel]:
    """One kernel for each op and each choice of types of its host arguments, in float32 if
    possible.
    """
    found: dict[Any, Kernel] = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type != "WGPU" or kernel.op.startswith("_Wgpu"):
            continue
        inputs = {arg.name: arg for arg in op_def_registry.get(kernel.op).input_arg}
        types = {c.name: tf.as_dtype(c.allowed_values.list.type[0]) for c in kernel.constraint}
        if not callable_with(kernel.op, types):
            continue
        on_host = [name for name in kernel.host_memory_arg if name in inputs]
        sizes, chosen = [], []
        for name in on_host:
            attr = inputs[name].type_attr
            dtype = types.get(attr) or tf.as_dtype(inputs[name].type or tf.int32.as_datatype_enum)
            if (name not in OPERANDS and dtype.is_integer) or (kernel.op, name) in FLOATS:
                sizes.append(name)
                chosen.append((name, dtype.name))
        if sizes and kernel.op not in EXEMPT:
            key = (kernel.op, tuple(on_host), tuple(chosen))
            row = Kernel(kernel.op, types, tuple(sizes), bool(MOVED.intersection(on_host)))
            if key not in found or rank(row) < rank(found[key]):
                found[key] = row
    return sorted(found.values(), key=str)


def callable_with(op: str, types: dict[str, tf.DType]) -> bool:
    """Whether the op's definition accepts the types: TensorFlow has a Prod of uint64 axes, which
    cannot be called.
    """
    allowed = {attr.name: attr.allowed_values.list.type for attr in op_def_registry.get(op).attr}
    return all(
        not allowed.get(name) or t.as_datatype_enum in allowed[name] for name, t in types.items()
    )


def rank(kernel: Kernel) -> int:
    """A rank; the kernel with the lowest rank represents those of other types best."""
    names = {t.name for t in kernel.types.values()}
    return next(
        (
            i
            for i, name in enumerate(("float32", "complex64", "float64", "float16"))
            if name in names
        ),
        9,
    )


@dataclass(frozen=True)
class Try:
    """One call with one argument changed."""

    kernel: Kernel
    argument: str
    name: str
    run: Callable[[], Any]
    #: The tolerances of the comparison: the sweep's.
    tolerance: Callable[[str], tuple[float | None, float | None]]


def changed(value: np.ndarray, limit: int | None) -> Iterator[tuple[str, np.ndarray]]:
    """The argument with single elements, and with all, replaced."""
    if value.dtype.kind not in "iu":
        values = [2.0**31, 2.0**62, -1.0, 3e38, float("nan"), float("inf")]
    else:
        info = np.iinfo(value.dtype)
        values = [v for v in VALUES if info.min <= v <= info.max]
    if limit:
        values = [v for v in values if abs(v) >= limit or v == -1]
    for v in values:
        places = range(min(value.size, ELEMENTS))
        for place in places:
            hostile = value.copy()
            hostile.flat[place] = v
            yield f"[{place}]={v:.6g}" if isinstance(v, float) else f"[{place}]={v}", hostile
        if value.size > 1:
            yield f"[:]={v}", np.full_like(value, v)


def tries(kernel: Kernel) -> Iterator[Try]:
    """All tries of one kernel."""
    case = case_of(kernel.op, kernel.types)
    if case is None:
        return
    rng = np.random.default_rng(zlib.crc32(str(kernel).encode()))
    calls = case.build(Types(kernel.op, kernel.types, rng))
    taken = 0
    for number, call in enumerate(calls):
        if taken == CALLS:
            return
        before = seen_in(
            kernel.op, call if isinstance(call, Program) else functional(kernel.op, call)
        )
        if before is None or not any(np.size(before[name]) for name in kernel.arguments):
            continue
        taken += 1
        fn = call.fn if isinstance(call, Program) else functional(kernel.op, call).fn
        for name in kernel.arguments:
            for wide in (False, True):
                value = np.asarray(before[name])
                if wide:
                    if value.dtype != np.int32 or not is_open(kernel, name):
                        continue
                    value = value.astype(np.int64)
                limit = 2**40 if kernel.on_host else None
                for text, hostile in changed(value, limit):
                    label = f"{kernel} call {number} {name}{text}"
                    yield Try(
                        kernel,
                        name,
                        label,
                        replacing(kernel.op, name, hostile, wide, fn),
                        case.tolerance,
                    )


def functional(op: str, call: dict[str, Any]) -> Program:
    """A sweep's call as a program."""
    return Program(lambda: getattr(tf.raw_ops, op)(**call), False)


def is_open(kernel: Kernel, name: str) -> bool:
    """Whether the registration leaves the argument's type open."""
    arg = next(a for a in op_def_registry.get(kernel.op).input_arg if a.name == name)
    attr = next((a for a in op_def_registry.get(kernel.op).attr if a.name == arg.type_attr), None)
    return (
        attr is not None
        and arg.type_attr not in kernel.types
        and 9 in attr.allowed_values.list.type
    )


class Seen(Exception):
    """Ends a program whose arguments are known."""

    def __init__(self, arguments: dict[str, Any]):
        super().__init__()
        self.arguments = arguments


@contextlib.contextmanager
def intercepted(op: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
    """Gives the first eager call of `op` other arguments."""
    definition = op_def_registry.get(op)
    names = [arg.name for arg in definition.input_arg]
    execute = pywrap_tfe.TFE_Py_FastPathExecute
    calls = itertools.count()

    def call(ctx: Any, name: str, label: Any, *arguments: Any) -> Any:
        if name == op and next(calls) == 0:
            inputs = dict(zip(names, arguments))
            arguments = (*change(inputs).values(), *arguments[len(names) :])
        return execute(ctx, name, label, *arguments)

    pywrap_tfe.TFE_Py_FastPathExecute = call
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_FastPathExecute = execute


def seen_in(op: str, program: Program) -> dict[str, Any] | None:
    """The arguments of the first call of `op`; None if it is called in another way."""

    def look(inputs: dict[str, Any]) -> dict[str, Any]:
        raise Seen(inputs)

    with tf.device(WGPU), intercepted(op, look):
        try:
            program.fn()
        except Seen as seen:
            return {k: array(v, op, k) for k, v in seen.arguments.items()}
    return None


def is_list(value: Any) -> bool:
    """Whether an argument is a list of tensors."""
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and isinstance(value[0], (tf.Tensor, np.ndarray))
    )


def array(value: Any, op: str, name: str) -> Any:
    """An argument's value; for a list, its first tensor's."""
    if isinstance(value, tf.Tensor):
        return np.zeros(0) if value.dtype in (tf.resource, tf.variant) else value.numpy()
    if is_list(value):
        return array(value[0], op, name)
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    # Python's numbers are converted to the type that the op takes first.
    arg = next(a for a in op_def_registry.get(op).input_arg if a.name == name)
    value = np.asarray(value)
    return (
        value.astype(np.int32)
        if value.dtype == np.int64 and tf.as_dtype(arg.type or 3) != tf.int64
        else value
    )


def replacing(
    op: str, name: str, hostile: np.ndarray, wide: bool, fn: Callable[[], Any]
) -> Callable[[], Any]:
    """`fn`, with another argument in the first call of `op`."""
    definition = op_def_registry.get(op)
    attr = next(a.type_attr for a in definition.input_arg if a.name == name)
    alike = {a.name for a in definition.input_arg if attr and a.type_attr == attr}

    def change(inputs: dict[str, Any]) -> dict[str, Any]:
        if wide:
            inputs = {
                k: tf.constant(np.asarray(v).astype(np.int64)) if k in alike else v
                for k, v in inputs.items()
            }
        others = list(inputs[name])[1:] if is_list(inputs[name]) else None
        return {
            **inputs,
            name: tf.constant(hostile) if others is None else [tf.constant(hostile), *others],
        }

    def run() -> Any:
        with intercepted(op, change):
            return fn()

    return run


def outcome(device: str, run: Callable[[], Any]) -> list[np.ndarray] | Exception:
    """The result of a try on one device."""
    tf.config.set_soft_device_placement(False)
    try:
        with tf.device(device):
            return [
                np.asarray(t.numpy())
                for t in tf.nest.flatten(run())
                if isinstance(t, tf.Tensor) and t.dtype != tf.variant
            ]
    except Exception as error:
        return error


def judge(attempt: Try) -> str | None:
    """Runs a try; returns a description of the problem with its result, if there is one."""
    got = outcome(WGPU, attempt.run)
    if isinstance(got, Exception):
        if "but expected to be" in str(got) or "cannot compute" in str(got):
            return f"does not run: {got}"
        if isinstance(got, ERRORS):
            return None
        return f"raises {type(got).__name__}: {str(got)[:300]}"
    if (attempt.kernel.op, attempt.argument) in CPU_IS_WRONG:
        return None
    print("CPU", attempt.name, flush=True)
    want = outcome(CPU, attempt.run)
    if isinstance(want, Exception):
        return (
            f"gives {[g.shape for g in got]}, on the CPU {type(want).__name__}: {str(want)[:300]}"
        )
    if [g.shape for g in got] != [w.shape for w in want]:
        return f"gives shapes {[g.shape for g in got]}, not {[w.shape for w in want]}"
    if attempt.kernel.op in UNLIKE:
        return None
    for g, w in zip(got, want):
        rtol, atol = attempt.tolerance(w.dtype.name)
        kind = complex if w.dtype.kind == "c" else float
        if not np.allclose(
            g.astype(kind), w.astype(kind), rtol or 1e-4, atol or 1e-4, equal_nan=True
        ):
            return f"gives {g.ravel()[:8]}, not {w.ravel()[:8]}"
    return None


def alive() -> str | None:
    """Checks whether the device still computes correct results; returns the problem, if there is
    one.
    """
    with tf.device(WGPU):
        x = tf.reshape(tf.range(12.0), (3, 4))
        got = tf.linalg.matmul(x, x, transpose_b=True).numpy()
    numbers = np.arange(12.0).reshape(3, 4)
    return None if np.array_equal(got, numbers @ numbers.T) else f"computes {got} afterwards"


def main(part: int, parts: int, first: int, only: str = "") -> None:
    """Runs a part of the tries."""
    assert conftest.wgpu_devices(), "no WGPU device"
    number = 0
    for kernel in registered()[part::parts]:
        if only and kernel.op not in only.split(","):
            continue
        ran = 0
        for attempt in tries(kernel):
            ran += 1
            number += 1
            if number <= first:
                continue
            print("TRY", number, attempt.name, flush=True)
            wrong = judge(attempt)
            if wrong:
                print("WRONG", attempt.name, wrong.replace("\n", " "), flush=True)
        print("RAN", ran, kernel, flush=True)
        wrong = alive()
        if wrong:
            print("WRONG", kernel, wrong.replace("\n", " "), flush=True)
    print("END", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
