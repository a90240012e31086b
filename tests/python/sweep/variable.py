"""Updates of whole variables."""

import numpy as np
import tensorflow as tf

from .core import case


@case(
    "AssignAddVariableOp",
    "AssignSubVariableOp",
    tol={"float16": (1e-3, 1e-3), "bfloat16": (1e-2, 1e-2)},
)
def assign_update(t):
    op = getattr(tf.raw_ops, t.op)
    # TensorFlow puts int32 variables on the CPU; the kernel guards against those of old graphs.
    soft = t["dtype"] == "int32"

    def update(shape):
        values = [t.values("dtype", shape) for _ in range(3)]

        def program():
            tf.config.set_soft_device_placement(soft)
            variable = tf.Variable(values[0])
            before = variable.read_value()
            for value in values[1:]:
                op(resource=variable.handle, value=tf.constant(value))
            # A value that was read earlier does not change.
            results = [variable.read_value().numpy(), before.numpy()]
            tf.config.set_soft_device_placement(False)
            with tf.device("CPU:0"):
                return [tf.constant(r) for r in results]

        return t.program(program)

    yield update((3, 5))
    yield update(())
    yield update((0, 3))
    yield update((257,))
    if np.dtype(t.numpy("dtype")).kind in "iu":
        limits = np.iinfo(t.numpy("dtype"))

        def wraps():
            tf.config.set_soft_device_placement(soft)
            variable = tf.Variable(np.asarray([limits.max, limits.min], t.numpy("dtype")))
            op(
                resource=variable.handle,
                value=tf.constant(np.asarray([limits.max, 1], t.numpy("dtype"))),
            )
            result = variable.read_value().numpy()
            tf.config.set_soft_device_placement(False)
            with tf.device("CPU:0"):
                return [tf.constant(result)]

        yield t.program(wraps)
