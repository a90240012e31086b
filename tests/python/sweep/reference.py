"""Reference variables of TensorFlow 1, which exist only in graphs; Assign, AssignAdd, AssignSub."""

import tensorflow as tf

from .core import case

v1 = tf.compat.v1


def changed(given, step, times=1):
    """The last result of `step`, which runs `times` times, and the variables after it. The
    variables start with the values `given`, and `step` gets them by name. Runs on the device of the
    scope around the call.
    """
    device = tf.constant(0.0).device
    with tf.Graph().as_default() as graph, tf.device(device):
        variables = {
            name: tf.raw_ops.VariableV2(shape=value.shape, dtype=value.dtype, shared_name=name)
            for name, value in given.items()
        }
        start = [tf.raw_ops.Assign(ref=variables[n], value=v) for n, v in given.items()]
        result = step(variables)
        values = [tf.identity(v) for v in variables.values()]
    config = v1.ConfigProto(allow_soft_placement=False)
    with v1.Session(graph=graph, config=config) as session:
        session.run([v.op for v in start])
        for _ in range(times):
            last = session.run(result)
        found = [last, *session.run(values)]
    return [tf.constant(v) for v in found]


@case("Assign", "AssignAdd", "AssignSub")
def assign(t):
    op = getattr(tf.raw_ops, t.op)
    for shape in ((3, 5), (), (0, 3), (257,)):
        given, value = t.values("T", shape), t.values("T", shape)
        yield t.program(
            lambda given=given, value=value: changed(
                {"ref": given}, lambda v: op(**v, value=value), times=2
            )
        )
    if t.op == "Assign":
        given, value = t.values("T", (2, 3)), t.values("T", (7,))
        yield t.program(
            lambda: changed(
                {"ref": given}, lambda v: op(**v, value=value, validate_shape=False), times=2
            )[:1]
        )
