"""Calls the ops that the plug-in defines itself."""

from __future__ import annotations

import importlib
from typing import Any


def call(
    op: str, inputs: dict[str, Any], dtype: Any, outputs: int = 1, **attributes: Any
) -> list[Any]:
    """The outputs of one of our own ops, which `tf.raw_ops` does not have.

    The names and the order of `inputs` and `attributes` are those of the op's definition. An input
    may be a list of tensors, whose number is among the attributes. `dtype` is the attribute T;
    `outputs` is the number of outputs. Gradients are recorded.
    """
    execute = importlib.import_module("tensorflow.python.eager.execute")
    context = importlib.import_module("tensorflow.python.eager.context").context()
    if context.executing_eagerly():
        named = ("T", dtype.as_datatype_enum, *_flat(attributes))
        lists = (value if isinstance(value, list) else [value] for value in inputs.values())
        given = [tensor for tensors in lists for tensor in tensors]
        found = execute.execute(op.encode(), outputs, inputs=given, attrs=named, ctx=context)
    else:
        wanted = {"T": dtype} | attributes
        node = _node(op, inputs, {k: v for k, v in wanted.items() if k not in _inferred(op)})
        named = _flat({name: node.get_attr(name) for name in attributes})
        given, found = node.inputs, node.outputs
    if execute.must_record_gradient():
        execute.record_gradient(op, given, named, found)
    return found


def _node(op: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> Any:
    library = importlib.import_module("tensorflow.python.framework.op_def_library")
    # A node's name does not begin with an underscore.
    return library._apply_op_helper(op, name=op.lstrip("_"), **inputs, **attributes)[2]


def _inferred(op: str) -> set[str]:
    """The attributes that inputs determine: they must not be given then."""
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    arguments = registry.get(op).input_arg
    return {name for a in arguments for name in (a.type_attr, a.number_attr) if name}


def _flat(attributes: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(part for item in attributes.items() for part in item)
