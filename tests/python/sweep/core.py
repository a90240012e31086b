"""The definition of a sweep case: an op's arguments, made from the types of one registration.

@case("Igamma", "Igammac", rtol=1e-4)
def incomplete_gamma(t):
    yield dict(a=t.uniform("T", (2, 3), 0.5, 4), x=t.uniform("T", (2, 3), 0.5, 4))
    yield dict(a=t.uniform("T", (0, 3), 1, 2), x=t.uniform("T", (), 1, 2))

A dict holds keyword arguments of `tf.raw_ops.<op>`, attributes included. A case that needs more
than one op (variables, lists) is a `t.program(fn)`: `fn` takes no arguments, runs under the device,
and returns tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

#: The longer sweep (`make sweep`): cases may add shapes with more than 65,535 workgroups or more
#: than one binding window.
LONG = os.environ.get("TF_WGPU_SWEEP") == "long"


@dataclass(frozen=True)
class Program:
    """A case that consists of more than one op."""

    fn: Callable[[], Any]
    graph: bool


@dataclass(frozen=True)
class Case:
    """The way in which the ops of one decorated function are swept."""

    build: Callable[[Types], Iterator[dict[str, Any] | Program]]
    #: True: the gradient must exist and agree. None: it must agree if TensorFlow has one. False: it
    #: is not compared.
    gradient: bool | None = None
    #: Types of which no gradient is compared: it needs ops that TensorFlow's GPU list lacks for
    #: these types.
    no_gradient: tuple[str, ...] = ()
    rtol: float | None = None
    atol: float | None = None
    #: Type name to (relative, absolute) tolerance, before `rtol` and `atol`.
    tol: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: Compares the lists of results instead of the tolerances, for results that are not unique.
    compare: Callable[[list[np.ndarray], list[np.ndarray]], None] | None = None
    #: For each type, the type in which TensorFlow's CPU computes the reference, if it lacks a
    #: kernel or is less precise.
    cpu_as: dict[str, str] = field(default_factory=dict)

    def tolerance(self, dtype: str) -> tuple[float | None, float | None]:
        """Relative and absolute tolerance for results of this type; None is the default of the
        type.
        """
        return self.tol.get(dtype, (self.rtol, self.atol))


#: The case for each op name. `"AddN:variant"` is the case of the registrations of AddN that have
#: this type; it takes precedence over `"AddN"`.
CASES: dict[str, Case] = {}


def case_of(op: str, types: dict[str, tf.DType]) -> Case | None:
    """The case of one registration."""
    own = (CASES.get(f"{op}:{t.name}") for t in types.values())
    return next((c for c in own if c), CASES.get(op))


def case(*ops: str, **options: Any) -> Callable:
    """Registers the decorated function as the case of `ops`; options are fields of `Case`."""

    def add(build: Callable) -> Callable:
        for op in ops:
            assert op not in CASES, f"{op} has two cases"
            CASES[op] = Case(build, **options)
        return build

    return add


class Types:
    """The types of one registration, and makers of arguments that have them."""

    def __init__(self, op: str, types: dict[str, tf.DType], rng: np.random.Generator):
        self.op, self.types, self.rng, self.long = op, types, rng, LONG

    def __getitem__(self, attr: str) -> tf.DType:
        return self.types[attr]

    def get(self, attr: str, default: tf.DType | None = None) -> tf.DType | None:
        """The type of `attr`, or `default` if the registration leaves it open."""
        return self.types.get(attr, default)

    def large(self) -> list[tuple[int, ...]]:
        """In the longer sweep, shapes for a wide and two packed types: more than 65,535 workgroups
        and one binding of 128 MiB.
        """
        wanted = self.long and self.types.get("T", tf.bool) in (tf.float32, tf.int8, tf.bool)
        return [((1 << 25) + 5,)] if wanted else []

    def many_rows(self) -> list[tuple[int, ...]]:
        """In the longer sweep: more rows than workgroups in one dimension."""
        return [(70_000, 3)] if self.long else []

    def numpy(self, attr: str | tf.DType) -> Any:
        """The numpy type of an attribute, or of a type."""
        return (self.types[attr] if isinstance(attr, str) else attr).as_numpy_dtype

    def uniform(
        self, attr: str | tf.DType, shape: tuple[int, ...], low: float, high: float
    ) -> np.ndarray:
        """Uniform values; complex types get two parts."""
        dtype = self.numpy(attr)
        x = self.rng.uniform(low, high, shape)
        if np.issubdtype(dtype, np.complexfloating):
            x = x + 1j * self.rng.uniform(low, high, shape)
        return np.asarray(x).astype(dtype)

    def normal(self, attr: str | tf.DType, shape: tuple[int, ...]) -> np.ndarray:
        """Standard normal values; complex types get two parts."""
        dtype = self.numpy(attr)
        x = self.rng.normal(size=shape)
        if np.issubdtype(dtype, np.complexfloating):
            x = x + 1j * self.rng.normal(size=shape)
        return np.asarray(x).astype(dtype)

    def integers(
        self, attr: str | tf.DType, shape: tuple[int, ...], low: int, high: int
    ) -> np.ndarray:
        """Whole numbers in [low, high), in any type."""
        return np.asarray(self.rng.integers(low, high, shape)).astype(self.numpy(attr))

    def values(self, attr: str | tf.DType, shape: tuple[int, ...]) -> np.ndarray:
        """Ordinary values of any type: normal floats, small integers (no negative ones in unsigned
        types), booleans.
        """
        dtype = np.dtype(self.numpy(attr))
        if dtype == np.bool_:
            return np.asarray(self.rng.integers(0, 2, shape)).astype(dtype)
        if dtype.kind in "iu":
            return self.integers(attr, shape, 0 if dtype.kind == "u" else -9, 10)
        return self.normal(attr, shape)

    def program(self, fn: Callable[[], Any], *, graph: bool = False) -> Program:
        """A case of several ops; with `graph` it also runs as a tf.function (it may not make
        variables then).
        """
        return Program(fn, graph)
