"""tf.parallel_stack, which TensorFlow turns into these two ops before it places a function."""

import tensorflow as tf

from .core import case


def stack(t, dtype, shapes):
    for shape in shapes:
        parts = [t.values(dtype, shape) for _ in range(5)]

        def run(parts=parts):
            return tf.function(lambda *p: tf.parallel_stack(p))(*(tf.constant(p) for p in parts))

        yield t.program(run)


@case("_ParallelConcatStart")
def parallel_concat_start(t):
    yield from stack(t, "dtype", [(), (3,), (2, 0, 3)])


@case("_ParallelConcatUpdate")
def parallel_concat_update(t):
    yield from stack(t, "T", [(1,), (7, 3), (129, 65)])
