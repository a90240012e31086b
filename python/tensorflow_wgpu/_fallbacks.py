"""Which ops of a program run on the CPU although a WGPU device is there, and why.

TensorFlow moves an op without a kernel to the CPU without a message, with a copy on either side.
`fallbacks` reports these ops once, for one program. The environment variable `TF_WGPU_FALLBACK`
watches a whole process: with `log`, each float op that falls back is logged once; with `error`,
`FallbackError` is raised after the function or eager op that held it.

The watch reads TensorFlow's own record of the graphs that it prepared for each device, after
placement and optimization, and the devices of eager results. TF 1 sessions are not watched, nor
eager ops of threads other than the one that imported TensorFlow.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tensorflow_wgpu import _notebook
from tensorflow_wgpu._library import device_type

log = logging.getLogger("tensorflow_wgpu")

#: `log` or `error`. For any other value the library warns, and nothing is watched.
VARIABLE = "TF_WGPU_FALLBACK"

# Ops that compute nothing: arguments, results, handles, and copies between devices.
COPIES = frozenset(
    ("_Arg", "_DeviceArg", "_Retval", "_DeviceRetval", "_Send", "_Recv", "_HostSend", "_HostRecv")
)
# TensorFlow's ops for loops and branches. They are on the device of their values, and their values
# are on the device of the ops that compute them.
LOOPS = ("Enter", "Exit", "Merge", "NextIteration", "Switch")
CONTROL = frozenset(
    (*LOOPS, *(f"Ref{op}" for op in LOOPS), "LoopCond", "_SwitchN", "ControlTrigger")
)
CALLS = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
PLUMBING = COPIES | CONTROL | CALLS | {"NoOp", "Placeholder", "VarHandleOp"}
# Ops that pass values on. They are reported only if they are the reason why values are on the CPU.
PASSIVE = frozenset(("Const", "Identity", "IdentityN"))
FLOATS = frozenset(("float16", "bfloat16", "float32", "float64", "complex64", "complex128"))


class FallbackError(RuntimeError):
    """A float op ran on the CPU while `TF_WGPU_FALLBACK=error` forbids it."""


@dataclass(frozen=True)
class Fallback:
    """One op with one set of types that runs on the CPU."""

    #: The op, as in "MatMul".
    op: str
    #: Its type attributes, as in {"T": "float64"}.
    types: dict[str, str]
    #: How many nodes of the program.
    count: int
    #: Whether it computes with floating-point or complex numbers: the ones that cost copies and
    #: time.
    floating: bool
    #: Why it is not on the device.
    why: str
    #: The name of one such node; empty for eager ops.
    node: str
    #: Whether WGPU lacks a kernel for it. Others are on the CPU in consequence, or were put there.
    cause: bool = True

    def __str__(self) -> str:
        types = ", ".join(f"{k}={v}" for k, v in sorted(self.types.items()))
        where = f" (as {self.node!r})" if self.node else ""
        return f"{self.count} x {self.op}({types}) on the CPU{where}: {self.why}"


class Fallbacks(tuple):  # of Fallback
    """What `fallbacks` found, the causes first; prints as a report, and as a table in notebooks."""

    __slots__ = ()

    @property
    def floating(self) -> Fallbacks:
        """Those that compute with floating-point or complex numbers."""
        return Fallbacks(f for f in self if f.floating)

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "every op runs on WGPU"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        if not self:
            return _notebook.preformatted(str(self))
        rows = [
            (
                fallback.op,
                ", ".join(f"{k}={v}" for k, v in sorted(fallback.types.items())),
                fallback.count,
                fallback.node,
                fallback.why,
            )
            for fallback in self
        ]
        return _notebook.table("on the CPU", ("op", "types", "count", "as", "why"), rows)


def fallbacks(fn_or_model: Callable, *inputs: Any, **keywords: Any) -> Fallbacks:
    """Runs a program once and returns the ops of it that ran on the CPU, with the reasons.

    `fn_or_model` is a Keras model, which is called as a `tf.function`; a `tf.function`, of which a
    fresh trace is run; or any other callable, such as `lambda: model.train_on_batch(x, y)`. Of
    such a callable, eager ops are examined, and functions that it runs for the first time.
    `inputs` and `keywords` are the arguments. Variables change as in any other run.

    Raises what the program raises, and RuntimeError where TensorFlow sees no WGPU device.
    """
    import tensorflow as tf

    if not tf.config.list_physical_devices(device_type()):
        raise RuntimeError("TensorFlow sees no WGPU device; `python -m tensorflow_wgpu` says why")
    if hasattr(fn_or_model, "python_function"):
        fn_or_model = tf.function(
            fn_or_model.python_function, autograph=getattr(fn_or_model, "_autograph", True)
        )
    elif hasattr(fn_or_model, "trainable_variables"):
        model = fn_or_model
        fn_or_model = tf.function(lambda *a, **k: model(*a, **k))
    found = Counter[Any]()
    nodes: dict[Any, str] = {}
    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(True)
    try:
        with _eager_ops(found), _graphs(found, nodes):
            fn_or_model(*inputs, **keywords)
    finally:
        tf.config.set_soft_device_placement(soft)
    return _explained(found, nodes)


def install(mode: str) -> None:
    """Watches this process in `mode`, once TensorFlow is imported."""
    if mode not in ("log", "error"):
        return
    context = sys.modules["tensorflow.python.eager.context"]
    if getattr(context.Context.call_function, "_wgpu_watched", False):
        return
    watch = _Watch(mode)
    call_function = context.Context.call_function

    @functools.wraps(call_function)
    def watched(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        return watch.function(name, functools.partial(call_function, self, name, *args, **kwargs))

    watched._wgpu_watched = True
    context.Context.call_function = watched
    # op_callbacks' own function: it makes the slow path of eager execution call them too.
    sys.modules["tensorflow.python.framework.op_callbacks"].add_op_callback(watch.eager)


class _Watch:
    """The watch of the whole process under `TF_WGPU_FALLBACK`."""

    def __init__(self, mode: str):
        self.mode = mode
        #: The message to raise at every call; None for functions without fallbacks.
        self.functions: dict[Any, str | None] = {}
        self.told: set[Any] = set()

    def function(self, name: Any, call: Callable[[], Any]) -> Any:
        """Calls a function. At the first call its graphs are examined, because TensorFlow prepares
        them only then.
        """
        if name in self.functions:
            result = call()
            if message := self.functions[name]:
                raise FallbackError(message)
            return result
        self.functions[name] = None
        found = Counter[Any]()
        nodes: dict[Any, str] = {}
        with _graphs(found, nodes):
            result = call()
        try:
            self.tell(found, nodes)
        except FallbackError as error:
            self.functions[name] = str(error)
            raise
        return result

    def eager(
        self, op: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        """TensorFlow calls it after each eager op and each op added to a graph."""
        del inputs, op_name
        if graph is None:
            found = Counter(_eager_key(op, attrs, outputs))
            if found:
                self.tell(found, {})

    def tell(self, found: Counter[Any], nodes: dict[Any, str]) -> None:
        """Logs or raises for fallbacks that are new."""
        new = _explained(
            Counter({k: n for k, n in found.items() if k not in self.told}), nodes
        ).floating
        self.told.update(found)
        if new and self.mode == "error":
            self.told.difference_update(found)
            raise FallbackError(f"{VARIABLE}=error: float ops ran on the CPU.\n{new}")
        for fallback in new:
            log.warning("tensorflow-wgpu: %s", fallback)


@contextlib.contextmanager
def observed() -> Iterator[list[Fallback]]:
    """A list that, after the body, holds the fallbacks of the functions that the body was the first
    to run. Eager ops are not examined, because that would slow them down.
    """
    found = Counter[Any]()
    nodes: dict[Any, str] = {}
    report: list[Fallback] = []
    with _graphs(found, nodes):
        yield report
    report += _explained(found, nodes)


#: The lists of the bodies of `collected` that run. A body may run within another one.
_COLLECTING: list[list[Any]] = []
_COLLECTING_LOCK = threading.Lock()


@contextlib.contextmanager
def collected() -> Iterator[list[Any]]:
    """A list that, after the body, holds the placed graphs of the functions that the body was the
    first to run.
    """
    context = sys.modules["tensorflow.python.eager.context"].context()
    context.ensure_initialized()
    graphs: list[Any] = []
    with _COLLECTING_LOCK:
        context.enable_graph_collection()
        # Those so far belong to the bodies around this one, or to none: Keras's TensorBoard
        # callback leaves graphs of its own.
        _collect(context)
        _COLLECTING.append(graphs)
    try:
        yield graphs
    finally:
        with _COLLECTING_LOCK:
            _collect(context)
            _COLLECTING[:] = [others for others in _COLLECTING if others is not graphs]
            if not _COLLECTING:
                context.disable_graph_collection()


def _collect(context: Any) -> None:
    """Moves the graphs that TensorFlow has collected to all bodies that run."""
    found = context.export_run_metadata().function_graphs
    for graphs in _COLLECTING:
        graphs += found


def has_floats(node: Any) -> bool:
    """Whether a node computes with floating-point or complex numbers."""
    return any(t in FLOATS for _, t in _types({k: v.type for k, v in node.attr.items() if v.type}))


@contextlib.contextmanager
def _graphs(found: Counter[Any], nodes: dict[Any, str]) -> Iterator[None]:
    """Counts the nodes on the CPU of the functions that the body is the first to run."""
    with collected() as graphs:
        yield
    for functions in graphs:
        here = [
            (node.name, (node.op, _types({k: v.type for k, v in node.attr.items() if v.type})))
            for graph in functions.partition_graphs
            for node in graph.node
            if node.device.rpartition("device:")[2].startswith("CPU:")
            and node.op not in PLUMBING
            # TensorFlow gives each other device a copy of a loop's condition.
            and not node.name.startswith("_cloop")
        ]
        if len(here) == 1 and here[0][0] == here[0][1][0] and here[0][1] in found:
            continue  # TensorFlow's wrapper around an eager op, which was counted as such.
        for name, key in here:
            found[key] += 1
            nodes.setdefault(key, name)


@contextlib.contextmanager
def _eager_ops(found: Counter[Any]) -> Iterator[None]:
    """Counts the eager ops of the body whose results are on the CPU."""
    callbacks = sys.modules["tensorflow.python.framework.op_callbacks"]

    def callback(
        op: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        del inputs, op_name
        if graph is None:
            found.update(_eager_key(op, attrs, outputs))

    callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        callbacks.remove_op_callback(callback)


def _eager_key(op: str, attrs: Any, outputs: Any) -> list[Any]:
    """The key of an eager op that ran on the CPU, or nothing."""
    dtypes = sys.modules["tensorflow.python.framework.dtypes"]
    op = op.decode() if isinstance(op, bytes) else op
    if (
        op in PLUMBING
        or not outputs
        or not all("CPU:" in getattr(y, "device", "") for y in outputs)
    ):
        return []
    pairs = dict(zip(attrs[::2], attrs[1::2])) if attrs else {}
    types = {}
    for name, value in pairs.items():
        name = name.decode() if isinstance(name, bytes) else name
        if isinstance(value, (int, dtypes.DType)) and _is_type(op, name):
            types[name] = dtypes.as_dtype(value).as_datatype_enum
    return [(op, _types(types))]


def _is_type(op: str, attr: str) -> bool:
    definition = sys.modules["tensorflow.python.framework.op_def_registry"].get(op)
    return definition is not None and any(
        a.name == attr and a.type == "type" for a in definition.attr
    )


def _types(numbers: dict[str, int]) -> tuple[tuple[str, str], ...]:
    dtypes = sys.modules["tensorflow.python.framework.dtypes"]
    return tuple(
        sorted((k, dtypes.as_dtype(n).name) for k, n in numbers.items() if not k.startswith("_"))
    )


def _explained(found: Counter[Any], nodes: dict[Any, str]) -> Fallbacks:
    """The report of the counted ops, sorted by `_rank`, then by count."""
    report = []
    for (op, types), count in found.items():
        cause, why = _why(op, dict(types))
        if op in PASSIVE and not cause:
            continue
        floating = any(t in FLOATS for _, t in types)
        node = nodes.get((op, types), "")
        report.append(Fallback(op, dict(types), count, floating, why, node, cause))
    return Fallbacks(sorted(report, key=lambda f: (_rank(f), -f.count, f.op)))


def _rank(fallback: Fallback) -> int:
    """Causes come first, those with floats before others, then float ops that follow from them.
    Input pipelines are on the CPU wherever TensorFlow runs.
    """
    if fallback.cause and fallback.floating:
        return 0
    if fallback.cause and not ("Dataset" in fallback.op or "Iterator" in fallback.op):
        return 1
    return 2 if fallback.floating else 3


def _why(op: str, types: dict[str, str]) -> tuple[bool, str]:
    """Why the placer did not choose WGPU: there is no kernel, or only for other types, which are
    causes, or it had no choice.
    """
    kernels = sys.modules["tensorflow.python.framework.kernels"]
    dtypes = sys.modules["tensorflow.python.framework.dtypes"]
    offered: list[dict[str, set[str]]] = []
    for kernel in kernels.get_registered_kernels_for_op(op).kernel:
        if kernel.device_type in (device_type(), "DEFAULT"):
            constraint = {
                c.name: {dtypes.as_dtype(t).name for t in c.allowed_values.list.type}
                for c in kernel.constraint
            }
            if all(
                types.get(name) in allowed for name, allowed in constraint.items() if name in types
            ):
                return False, (
                    "WGPU has a kernel, but tf.device, a resource or an input that lives on the "
                    "CPU (a dataset's "
                    "iterator, a variable made there), or its small int32 operands keep it there"
                )
            offered.append(constraint)
    if not offered and op.startswith("_"):
        return False, (
            "TensorFlow's optimizer made it of ops that tf.device, a resource or an input had kept "
            "on the CPU"
        )
    if not offered:
        return True, f"WGPU has no kernel for {op}"
    for name in sorted(types):
        allowed = set().union(*(c.get(name, {types[name]}) for c in offered))
        if types[name] not in allowed:
            return True, (
                f"WGPU has kernels for {name} in {', '.join(sorted(allowed))}, not for "
                f"{types[name]}"
            )
    return True, (
        "WGPU has no kernel for this combination of types: "
        f"{', '.join(f'{k}={v}' for k, v in sorted(types.items()))}"
    )


def mode() -> str:
    """The mode that the environment asks for; empty for none."""
    return os.environ.get(VARIABLE, "").strip().lower()
