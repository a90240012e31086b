"""Every kernel that the plug-in registers, run once with forced placement, eager and in a
tf.function, against the CPU.

The list is TensorFlow's own registry, so that a kernel without a case in `sweep/` fails here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close
from sweep.core import CASES, LONG, Case, Program, Types, case_of
from tensorflow.python.framework import kernels, op_def_registry, ops
from tensorflow_wgpu._library import device_type

#: The type in which a reference is computed if TensorFlow's CPU lacks the type.
WIDER = {
    "bfloat16": "float32",
    "float16": "float32",
    "int8": "int32",
    "uint8": "int32",
    "int16": "int32",
    "uint16": "int32",
}
MISSING = (
    "Could not find device for node",
    "No OpKernel",
    "no supported kernel",
    "No registered",
    "Unsupported type",
)


def registrations() -> list[tuple[str, dict[str, tf.DType]]]:
    """(op, types) of every kernel of the plug-in.

    Our own ops are not included: only the graph optimizer makes them, and their tests are
    `test_optimizer_*.py`.
    """
    found = []
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type == device_type() and not kernel.op.startswith("_Wgpu"):
            if kernel.priority < LEAST_PRIORITY:
                continue
            types = {c.name: tf.as_dtype(c.allowed_values.list.type[0]) for c in kernel.constraint}
            found.append((kernel.op, types))
    return sorted(found, key=lambda r: (r[0], sorted((k, v.name) for k, v in r[1].items())))


def name(registration: tuple[str, dict[str, tf.DType]]) -> str:
    """The test's id."""
    op, types = registration
    return "-".join([op, *(f"{k}:{v.name}" for k, v in sorted(types.items()))])


#: For the type GPU, TensorFlow has its own kernels of lower priorities.
LEAST_PRIORITY = 2 if device_type() == "GPU" else 0

REGISTRATIONS = registrations()


def test_every_registered_op_has_a_case():
    missing = sorted({op for op, types in REGISTRATIONS if case_of(op, types) is None})
    assert not missing, f"ops without a case in tests/python/sweep: {missing}"


def test_every_case_is_of_a_registered_op():
    capable = {op for op, _ in REGISTRATIONS}
    assert not {name.partition(":")[0] for name in CASES} - capable, (
        "cases of ops that are not registered"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("registration", [r for r in REGISTRATIONS if case_of(*r)], ids=name)
def test_sweep(registration):
    op, types = registration
    case = case_of(op, types)
    ran = 0
    for number, call in enumerate(
        case.build(Types(op, types, np.random.default_rng(zlib.crc32(name(registration).encode()))))
    ):
        try:
            if isinstance(call, Program):
                sweep_program(call, case)
            else:
                sweep_call(op, types, call, case)
        except AssertionError as error:
            raise AssertionError(f"{name(registration)}, call {number}: {error}") from error
        ran += 1
    assert ran, "the case yields nothing"


def sweep_program(program: Program, case: Case) -> None:
    with tf.device(CPU):
        want = arrays(program.fn())
    with tf.device(WGPU):
        check(case, arrays(program.fn()), want)
        if program.graph:
            check(case, arrays(placed(program.fn)()), want)


def sweep_call(op: str, types: dict[str, tf.DType], call: dict[str, Any], case: Case) -> None:
    inputs = {arg.name for arg in op_def_registry.get(op).input_arg}
    attributes = {k: v for k, v in call.items() if k not in inputs}
    raw = getattr(tf.raw_ops, op)

    def run(tensors: dict[str, Any]) -> Any:
        return raw(**tensors, **attributes)

    want = reference(raw, call, inputs, types, case)
    with tf.device(WGPU):
        tensors = tensors_of(call, inputs)
        check(case, arrays(run(tensors)), want)
        check(case, arrays(placed(run)(tensors)), want)
        if LONG:
            check(case, arrays(run(strided(tensors))), want)
    compared = case.gradient is not False and not {t.name for t in types.values()} & set(
        case.no_gradient
    )
    if compared and differentiable(op, case.gradient):
        sweep_gradient(run, call, inputs, case)


def strided(tensors: dict[str, Any]) -> dict[str, Any]:
    """The same values as strided slices of larger tensors, made on the device."""

    def slice_of(t: tf.Tensor) -> tf.Tensor:
        if not t.shape.rank or t.dtype in (tf.resource, tf.variant) or t.dtype == tf.int32:
            return t
        wide = tf.stack([t, tf.reverse(t, [0])], axis=t.shape.rank)
        return wide[..., 0]

    return tf.nest.map_structure(slice_of, tensors)


def sweep_gradient(run: Callable, call: dict[str, Any], inputs: set[str], case: Case) -> None:
    """Compares the gradient of a weighted sum of the outputs on both devices. Without a kernel on
    the CPU there is nothing to compare with.
    """

    def gradients(device: str) -> list[np.ndarray | None] | None:
        with tf.device(device), tf.GradientTape() as tape:
            tensors = tensors_of(call, inputs)
            watched = [
                t for t in tf.nest.flatten(tensors) if t.dtype.is_floating or t.dtype.is_complex
            ]
            tape.watch(watched)
            outputs = [
                y
                for y in tf.nest.flatten(run(tensors))
                if y.dtype.is_floating or y.dtype.is_complex
            ]
            if not watched or not outputs:
                return None
        seeds = []
        for y in outputs:
            ramp = np.cos(np.arange(np.prod(y.shape, dtype=int), dtype="float64")).reshape(y.shape)
            with tf.device(device):
                seeds.append(tf.constant(ramp.astype(y.dtype.as_numpy_dtype)))
        with tf.device(device):
            found = tape.gradient(outputs, watched, output_gradients=seeds)
            return [None if g is None else tf.convert_to_tensor(g).numpy() for g in found]

    try:
        want = gradients(CPU)
    except (
        LookupError,
        tf.errors.NotFoundError,
        tf.errors.InvalidArgumentError,
        tf.errors.UnimplementedError,
    ):
        if case.gradient:
            raise
        return
    if want is None:
        assert not case.gradient, "no gradient to compare"
        return
    got = gradients(WGPU)
    assert [g is None for g in got] == [w is None for w in want]
    for g, w in zip(got, want):
        if w is not None:
            rtol, atol = case.tolerance(w.dtype.name)
            assert_close(g, w, rtol, atol)


def placed(fn: Callable) -> Callable:
    """`fn` as a tf.function whose body is forced onto WGPU."""

    def body(*args: Any) -> Any:
        with tf.device(WGPU):
            return fn(*args)

    return tf.function(body)


def tensors_of(
    call: dict[str, Any], inputs: set[str], cast: dict[Any, Any] | None = None
) -> dict[str, Any]:
    """The inputs among a call's arguments as tensors on the current device."""

    def tensor(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [tensor(v) for v in value]
        if cast and isinstance(value, np.ndarray):
            value = value.astype(cast.get(value.dtype, value.dtype))
        return value if isinstance(value, tf.Tensor) else tf.constant(value)

    return {k: tensor(v) for k, v in call.items() if k in inputs}


def reference(
    raw: Callable, call: dict[str, Any], inputs: set[str], types: dict[str, tf.DType], case: Case
) -> list[np.ndarray]:
    """The results of TensorFlow's CPU, in a wider type if it has no kernel."""
    attributes = {k: v for k, v in call.items() if k not in inputs}

    def run(wider: dict[str, str]) -> list[np.ndarray]:
        cast = {
            np.dtype(tf.as_dtype(k).as_numpy_dtype): np.dtype(tf.as_dtype(v).as_numpy_dtype)
            for k, v in wider.items()
        }
        with tf.device(CPU):
            named = {
                k: tf.as_dtype(wider[v.name]) if isinstance(v, tf.DType) and v.name in wider else v
                for k, v in attributes.items()
            }
            return arrays(raw(**tensors_of(call, inputs, cast), **named))

    used = {t.name for t in types.values()}
    forced = {k: v for k, v in case.cpu_as.items() if k in used}
    if forced:
        return narrowed(run(forced), forced)
    try:
        return run({})
    except (
        tf.errors.NotFoundError,
        tf.errors.InvalidArgumentError,
        tf.errors.UnimplementedError,
    ) as error:
        wider = {k: v for k, v in WIDER.items() if k in used}
        if not wider or not any(m in str(error) for m in MISSING):
            raise
        return narrowed(run(wider), wider)


def narrowed(results: list[np.ndarray], wider: dict[str, str]) -> list[np.ndarray]:
    """Results of a wider reference in the requested type; several narrow types never share a wider
    one.
    """
    back = {tf.as_dtype(v).as_numpy_dtype: tf.as_dtype(k).as_numpy_dtype for k, v in wider.items()}
    return [r.astype(back.get(r.dtype.type, r.dtype)) for r in results]


def differentiable(op: str, wanted: bool | None) -> bool:
    """Whether TensorFlow has a gradient function for `op`."""
    try:
        return ops._gradient_registry.lookup(op) is not None
    except LookupError:
        return bool(wanted)


def arrays(results: Any) -> list[np.ndarray]:
    """The results as a flat list of arrays."""
    return [np.asarray(t.numpy()) for t in tf.nest.flatten(results) if isinstance(t, tf.Tensor)]


def check(case: Case, got: list[np.ndarray], want: list[np.ndarray]) -> None:
    """Compares results by the case's rule."""
    assert len(got) == len(want)
    if case.compare:
        case.compare(got, want)
        return
    for g, w in zip(got, want):
        rtol, atol = case.tolerance(w.dtype.name)
        assert_close(g, w, rtol, atol)
