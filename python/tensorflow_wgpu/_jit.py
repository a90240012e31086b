"""`jit_compile=True` on WGPU, for which XLA has no compiler: the function runs without XLA, after
one warning.

A `tf.function(jit_compile=True)` that is traced for WGPU is traced as if it had not asked for XLA:
outside of XLA's context, which forbids ops and keeps loops from being lowered, and without the
attributes that make TensorFlow hand it to XLA. The trace for `tf.device("CPU:0")` is a different
one, which keeps them. A SavedModel's functions lose them when it is loaded. With
`TF_WGPU_JIT=error` all of this is refused instead.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from tensorflow_wgpu._placement import has_kernel, runs_on

log = logging.getLogger("tensorflow_wgpu")

#: `error`: an explicit jit_compile=True on WGPU is an error.
VARIABLE = "TF_WGPU_JIT"

ADVICE = (
    "XLA has no compiler for WGPU devices; leave jit_compile out, or run this under "
    "tf.device('CPU:0')"
)

MUST_COMPILE = "_XlaMustCompile"
# TensorFlow sets it on functions for XLA, so that they stay whole; the optimizer needs them
# inlined.
NO_INLINE = "_noinline"


@functools.cache
def warn() -> None:
    """Warns once that XLA is left out."""
    log.warning(
        "tensorflow-wgpu: jit_compile=True: XLA has no compiler for WGPU devices; the plug-in's "
        "own graph optimizer takes its place, here and wherever else this process asks for XLA. "
        "%s=error makes it an error.",
        VARIABLE,
    )


def is_refused() -> bool:
    """Whether `TF_WGPU_JIT` asks for errors."""
    return os.environ.get(VARIABLE, "").strip().lower() == "error"


def patch_function(module: types.ModuleType) -> None:
    """Traces a `tf.function(jit_compile=True)` that runs on WGPU outside of XLA's context, or
    refuses it.
    """
    with_xla = module.OptionalXlaContext
    call = module.Function._call
    get_concrete_function = module.Function._get_concrete_function_garbage_collected

    class OptionalXlaContext(with_xla):
        def __init__(self, is_compiled: Any) -> None:
            super().__init__(is_compiled and not runs_on())

    @functools.wraps(call)
    def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "_jit_compile", None) and is_refused() and runs_on():
            name = getattr(self, "_name", "")
            raise _invalid_argument(
                f"tf.function(jit_compile=True) {name!r} cannot run on WGPU: {ADVICE}."
            )
        return call(self, *args, **kwargs)

    @functools.wraps(get_concrete_function)
    def _get_concrete_function_garbage_collected(self: Any, *args: Any, **kwargs: Any) -> Any:
        # In the same context as a call, so that both find the same trace.
        with OptionalXlaContext(getattr(self, "_jit_compile", None)):
            return get_concrete_function(self, *args, **kwargs)

    module.OptionalXlaContext = OptionalXlaContext
    module.Function._call = _call
    module.Function._get_concrete_function_garbage_collected = (
        _get_concrete_function_garbage_collected
    )


def patch_function_context(module: types.ModuleType) -> None:
    """A function has one trace within XLA's context, for the CPU, and another one outside of it,
    for WGPU.
    """
    original = module.make_function_context
    enclosing = module._enclosing_xla_context

    @functools.wraps(original)
    def make_function_context(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        if made.context.xla_context_id or enclosing() is None:
            return made
        return made._replace(context=made.context._replace(xla_context_id=1))

    module.make_function_context = make_function_context


def patch_atomic_function(module: types.ModuleType) -> None:
    """Functions that are traced for WGPU do not ask for XLA, nor do the forward and backward
    functions of tapes.
    """
    original = module.from_func_graph

    @functools.wraps(original)
    def from_func_graph(name: Any, graph: Any, attrs: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_set(attrs, MUST_COMPILE) and not is_refused() and runs_on():
            _refuse_ops_of_xla(graph)
            warn()
            attrs = {key: attrs[key] for key in attrs if key not in (MUST_COMPILE, NO_INLINE)}
        return original(name, graph, attrs, *args, **kwargs)

    module.from_func_graph = from_func_graph


def patch_deserialization(module: types.ModuleType) -> None:
    """SavedModel: the calls within functions do not ask for XLA. The functions go through
    `from_func_graph`.
    """
    original = module.load_function_def_library

    @functools.wraps(original)
    def load_function_def_library(library: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_refused() and runs_on():
            calls = [
                node
                for f in library.function
                for node in f.node_def
                if _is_set(node.attr, MUST_COMPILE)
            ]
            if calls:
                warn()
            for node in calls:
                del node.attr[MUST_COMPILE]
        return original(library, *args, **kwargs)

    module.load_function_def_library = load_function_def_library


def _is_set(attrs: Mapping[str, Any] | None, name: str) -> bool:
    """Whether an attribute, a bool or a proto that holds one, is there and true."""
    value = attrs.get(name) if attrs else None
    return bool(getattr(value, "b", value))


def _refuse_ops_of_xla(graph: Any) -> None:
    """Raises if a function, or one that it calls, holds XLA's own ops, such as XlaDot.

    TensorFlow has kernels for them on the CPU, which compile only the single op. The function does
    not ask for that, they would run on the CPU without a warning, and some of them end the process.
    """
    ops = {op.type for op in graph.get_operations()}
    for function in getattr(graph, "_functions", {}).values():
        ops.update(node.op for node in function.cached_definition.node_def)
    if alone := sorted(op for op in ops if op.startswith("Xla") and not has_kernel(op)):
        raise _invalid_argument(
            f"tf.function(jit_compile=True) {graph.name!r} holds {', '.join(alone)}, which XLA "
            f"alone can run: {ADVICE}."
        )


def _invalid_argument(message: str) -> Exception:
    return sys.modules["tensorflow.python.framework.errors_impl"].InvalidArgumentError(
        None, None, message
    )
