"""Ops that current graphs refuse and graphs of old GraphDef versions accept."""

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from .core import case


def removed_op(name, inputs, types, producer=1, **attributes):
    """Runs an op in a graph of an old version, on the current device; `types` are its type
    attributes.
    """
    device = tf.constant(0.0).device
    inputs = [np.asarray(i) for i in inputs]
    with tf.Graph().as_default() as graph, tf.device(device):
        placeholders = [tf.compat.v1.placeholder(i.dtype, i.shape) for i in inputs]
    definition = graph.as_graph_def()
    node = definition.node.add(
        op=name, name="removed", device=device, input=[p.op.name for p in placeholders]
    )
    for key, dtype in types.items():
        node.attr[key].type = tf.as_dtype(dtype).as_datatype_enum
    for key, value in attributes.items():
        node.attr[key].CopyFrom(attribute(value))
    definition.versions.producer = producer
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        outputs = graph.get_operation_by_name("removed").outputs
        feed = {p.name: i for p, i in zip(placeholders, inputs)}
        with tf.compat.v1.Session(
            graph=graph, config=tf.compat.v1.ConfigProto(allow_soft_placement=False)
        ) as session:
            results = session.run(outputs, feed)
    return [tf.constant(r) for r in results]


@case("BatchNormWithGlobalNormalization", gradient=False, tol={"float16": (1e-2, 1e-2)})
def global_norm(t):
    for shape, scaled in [((2, 3, 4, 5), True), ((2, 3, 4, 5), False), ((0, 2, 2, 3), True)]:
        x, channels = t.normal("T", shape), shape[-1:]
        inputs = [x, t.normal("T", channels), t.uniform("T", channels, 0.5, 2)]
        inputs += [t.normal("T", channels) for _ in range(2)]
        yield global_norm_call(t, inputs, scaled)


@case("BatchNormWithGlobalNormalizationGrad", gradient=False, tol={"float16": (2e-2, 5e-2)})
def global_norm_gradient(t):
    for shape, scaled in [((2, 3, 4, 5), True), ((2, 3, 4, 5), False), ((1, 1, 1, 3), True)]:
        x, channels = t.normal("T", shape), shape[-1:]
        inputs = [
            x,
            t.normal("T", channels),
            t.uniform("T", channels, 0.5, 2),
            t.normal("T", channels),
        ]
        yield global_norm_call(t, [*inputs, t.normal("T", shape)], scaled)


def global_norm_call(t, inputs, scaled):
    options = dict(variance_epsilon=0.01, scale_after_normalization=scaled)
    return t.program(lambda: removed_op(t.op, inputs, t.types, producer=8, **options))


def attribute(value):
    """A value as an attribute of a node; lists are of whole numbers."""
    if isinstance(value, str):
        return attr_value_pb2.AttrValue(s=value.encode())
    if isinstance(value, list):
        return attr_value_pb2.AttrValue(list=attr_value_pb2.AttrValue.ListValue(i=value))
    kind = {bool: "b", int: "i", float: "f"}[type(value)]
    return attr_value_pb2.AttrValue(**{kind: value})
