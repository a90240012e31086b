"""The fused elementwise op and the pass that emits it."""

from __future__ import annotations

import pytest
import tensorflow as tf

OP = "_WgpuFusedElementwise"


def fused(inputs: dict[str, tuple[tf.DType, tf.TensorShape]], outputs: list[tf.DType], expression: str, constants=()):
    """A GraphDef with one fused node over placeholders."""
    graph = tf.compat.v1.GraphDef()
    graph.versions.producer = tf.version.GRAPH_DEF_VERSION
    for name, (dtype, shape) in inputs.items():
        node = graph.node.add(name=name, op="Placeholder")
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    node = graph.node.add(name="fused", op=OP, input=list(inputs))
    node.attr["T_in"].list.type.extend(dtype.as_datatype_enum for dtype, _ in inputs.values())
    node.attr["T_out"].list.type.extend(dtype.as_datatype_enum for dtype in outputs)
    node.attr["expression"].s = expression.encode()
    node.attr["constants"].list.f.extend(constants)
    node.attr["constants"].list.SetInParent()
    return graph


@pytest.mark.parametrize(
    ("shapes", "want"),
    [
        ([[2, 3]], [2, 3]),
        ([[]], []),
        ([None], None),
        ([[None, 3]], [None, 3]),
        ([[2, 1], [1, 4]], [2, 4]),
        ([[None, 1], [5]], [None, 5]),
        ([[2, 3], None], None),
    ],
)
def test_shapes_are_inferred(shapes, want):
    inputs = {f"x{i}": (tf.float32, shape) for i, shape in enumerate(shapes)}
    types = ", ".join("float32" for _ in shapes)
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(fused(inputs, [tf.float32] * 2, f"x: {types}; c: 0; return x0, x0"), name="")
        outputs = graph.get_operation_by_name("fused").outputs
    assert [t.shape.as_list() if t.shape.rank is not None else None for t in outputs] == [want] * 2


def test_shapes_that_do_not_go_together_are_refused():
    inputs = {"a": (tf.float32, [2, 3]), "b": (tf.float32, [4])}
    with tf.Graph().as_default(), pytest.raises(ValueError, match=rf"{OP}: Incompatible shapes: \[3\] vs\. \[4\]"):
        tf.import_graph_def(fused(inputs, [tf.float32], "x: float32, float32; c: 0; return x0"), name="")
