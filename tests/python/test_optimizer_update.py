"""The op that updates many variables in place, and the passes that emit it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from support import WGPU
from tensorflow.python.eager import context, execute

OP = "_WgpuFusedUpdate"
DESCENT = "x: float32, float32, float32; c: 1; s0 = Mul<float32>(x1, x2); s1 = Mul<float32>(s0, c0); s2 = Sub<float32>(x0, s1); return s2"


def update(expression, variables, tensors, scalars, constants, members):
    """Runs the op eagerly."""
    attrs = (
        *("N", members, "NR", len(variables)),
        *("Ttensors", [t.dtype.as_datatype_enum for t in tensors]),
        *("Tscalars", [t.dtype.as_datatype_enum for t in scalars]),
        *("expression", expression, "constants", constants),
    )
    inputs = [v.handle for v in variables] + list(tensors) + list(scalars)
    execute.execute(OP, 0, inputs, attrs, context.context())


def test_variables_of_several_shapes_change_in_place():
    with tf.device(WGPU):
        variables = [tf.Variable(np.full(shape, 3, "float32")) for shape in ([2, 3], [], [1000])]
        gradients = [tf.constant(np.arange(v.shape.num_elements(), dtype="float32").reshape(v.shape)) for v in variables]
        kept = variables[0].read_value()
        update(DESCENT, variables, gradients, [tf.constant(0.5)], [0.25], 3)
    for v, g in zip(variables, gradients):
        np.testing.assert_array_equal(v.numpy(), 3 - g.numpy() / 8)
    # What was read before stays as it was.
    np.testing.assert_array_equal(kept.numpy(), np.full([2, 3], 3, "float32"))


def test_errors_are_those_of_the_plain_ops():
    with tf.device(WGPU):
        v, scalar = tf.Variable([1.0, 2.0]), tf.constant(1.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{OP}.*shape \[2\] using a Tensor with shape \[3\]"):
            update(DESCENT, [v], [tf.ones([3])], [scalar], [1.0], 1)
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="never_assigned")
        with pytest.raises(tf.errors.FailedPreconditionError):
            update(DESCENT, [SimpleNamespace(handle=handle)], [tf.ones([2])], [scalar], [1.0], 1)
    np.testing.assert_array_equal(v.numpy(), [1.0, 2.0])
