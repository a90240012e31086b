"""Data movement through TensorFlow: eager and tf.function against the CPU, gradients, types,
errors.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import WGPU, on_both, python, shares_memory

TYPES = ["float32", "float16", "bfloat16", "int64", "bool", "uint8", "complex64"]


def values(rng, dtype, *shape):
    return tf.cast(
        tf.constant(rng.integers(0, 2 if dtype == "bool" else 100, size=shape)), dtype
    ).numpy()


@pytest.mark.parametrize("dtype", TYPES)
def test_moves_of_every_type(rng, dtype):
    x = values(rng, dtype, 3, 4, 5)
    on_both(lambda x: tf.transpose(x, [2, 0, 1]), x)
    on_both(lambda x: x[1:, ::-2, 3], x)
    on_both(lambda x: x[..., tf.newaxis, -1:], x)
    on_both(lambda x: tf.slice(x, [1, 0, 2], [2, -1, 3]), x)
    on_both(lambda x: tf.tile(x, [2, 1, 3]), x)
    on_both(lambda x: tf.broadcast_to(x[:, :1], [2, 3, 4, 5]), x)
    on_both(lambda x: tf.reverse(x, [0, -1]), x)
    on_both(lambda x: tf.concat([x, x[:, :1], x], 1), x)
    on_both(lambda x: tf.concat([x, x], -1), x)
    on_both(lambda x: tf.stack([x, x, x], 1), x)
    on_both(lambda x: tf.unstack(x, axis=2), x)
    on_both(lambda x: tf.split(x, 2, axis=1), x)
    on_both(lambda x: tf.split(x, [1, 3, -1], axis=2), x)
    on_both(lambda x: tf.zeros_like(x), x)
    on_both(lambda x: tf.ones_like(x), x)
    on_both(lambda x: tf.fill([2, 3], x[0, 0, 0]), x)
    on_both(lambda x: tf.pad(x, [[1, 0], [0, 2], [1, 1]]), x)
    if dtype != "bool":
        on_both(
            lambda x: tf.pad(x, [[1, 0], [0, 2], [1, 1]], constant_values=tf.constant(7, dtype)), x
        )
    if dtype not in ("bool", "uint8"):
        on_both(lambda x: tf.roll(x, [1, -2], [0, 2]), x)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
def test_mirror_pad(rng, mode):
    x = rng.normal(size=(3, 4, 2)).astype("float32")
    on_both(lambda x: tf.pad(x, [[2, 1], [0, 3], [0, 0]], mode), x)


@pytest.mark.parametrize("mode", ["REFLECT", "SYMMETRIC"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_mirror_pad_gradient(rng, mode, dtype):
    dy = rng.integers(-8, 8, size=(6, 7, 8)).astype(dtype)
    for paddings in ([[2, 1], [0, 3], [0, 0]], [[0, 0], [0, 0], [2, 1]], [[1, 1], [2, 1], [2, 2]]):
        on_both(
            lambda dy, p=paddings: tf.raw_ops.MirrorPadGrad(input=dy, paddings=p, mode=mode), dy
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "complex64"])
@pytest.mark.parametrize("align", ["LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"])
def test_matrix_diagonals(rng, dtype, align):
    x = values(rng, dtype, 2, 4, 5)
    for k in (0, 1, -2, (-1, 2), (-3, -1), (2, 4), (-3, 4)):
        on_both(lambda x, k=k: tf.linalg.diag_part(x, k=k, align=align), x)
        packed = tf.linalg.diag_part(x, k=k, align=align).numpy()
        on_both(
            lambda x, d, k=k: tf.linalg.set_diag(x, d, k=k, align=align), x[::-1].copy(), packed
        )
        on_both(lambda d, k=k: tf.linalg.diag(d, k=k, num_rows=4, num_cols=5, align=align), packed)
        if isinstance(k, int):
            on_both(lambda d, k=k: tf.linalg.diag(d, k=k), packed)


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_plain_diagonals_and_bands(rng, dtype):
    x = values(rng, dtype, 3, 4, 5)
    for lower, upper in ((0, 0), (1, -1), (-1, 0), (2, 1), (-1, -1)):
        on_both(lambda x, lo=lower, up=upper: tf.linalg.band_part(x, lo, up), x)
    on_both(lambda x: tf.raw_ops.MatrixDiagPart(input=x), x)
    on_both(lambda x: tf.raw_ops.MatrixDiag(diagonal=x), x)
    on_both(lambda x: tf.raw_ops.MatrixSetDiag(input=x, diagonal=x[:, :, 0]), x)
    on_both(lambda x: tf.linalg.tensor_diag(x), x[0, :2, :3])
    on_both(
        lambda x: tf.linalg.tensor_diag_part(tf.reshape(x, [2, 5, 2, 3])[:, :2, :, :2]),
        values(rng, dtype, 3, 4, 5),
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_blocks_of_space(rng, dtype):
    x = values(rng, dtype, 4, 6, 4, 8)
    on_both(lambda x: tf.nn.depth_to_space(x, 2), x)
    on_both(lambda x: tf.nn.space_to_depth(x, 2), x)
    on_both(lambda x: tf.space_to_batch(x, [3, 2], [[1, 2], [0, 2]]), x)
    on_both(lambda x: tf.space_to_batch(x, [2], [[0, 0]]), x)
    on_both(lambda x: tf.batch_to_space(x, [2, 2], [[1, 2], [0, 1]]), x)
    on_both(lambda x: tf.batch_to_space(x, [2, 1], [[0, 0], [0, 0]]), x)
    # TensorFlow's CPU kernels have no NCHW: a transpose is the reference.
    with tf.device(WGPU):
        for op in (tf.nn.depth_to_space, tf.nn.space_to_depth):
            nchw = op(tf.transpose(tf.constant(x), [0, 3, 1, 2]), 2, "NCHW")
            nhwc = op(tf.constant(x), 2)
            np.testing.assert_array_equal(nchw.numpy(), tf.transpose(nhwc, [0, 3, 1, 2]).numpy())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int64"])
def test_slices_are_assigned(rng, dtype):
    x = values(rng, dtype, 5, 7)
    slices = [
        np.s_[1:4, ::2],
        np.s_[::-2, 3],
        np.s_[2],
        np.s_[..., -1:],
        np.s_[:0],
        np.s_[-1:0:-3, 1:6:4],
    ]
    for where in slices:
        value = values(rng, dtype, *x[where].shape)
        want = x.copy()
        want[where] = value
        with tf.device(WGPU):
            variable = tf.Variable(x)
            variable[where].assign(value)
            np.testing.assert_array_equal(variable.numpy(), want)
    with tf.device(WGPU):
        for shape in ((1, 0), (5, 0), ()):
            # Nothing is written, so the shape of the value does not matter.
            variable[1:1, 1:1].assign(values(rng, dtype, *shape))
        np.testing.assert_array_equal(variable.numpy(), want)
    spec = {"begin": [1, 0], "end": [5, 7], "strides": [2, 3]}
    for whole in (x, np.arange(35, dtype="int32").reshape(5, 7)):
        value = values(rng, dtype, 2, 3).astype(whole.dtype)
        on_both(
            lambda x, v: tf.raw_ops.TensorStridedSliceUpdate(input=x, value=v, **spec), whole, value
        )


def test_ranges_and_shapes():
    on_both(lambda: tf.range(0.5, 4.0, 0.75))
    for start, limit, delta in (
        (0.1, 1.1, 0.1),
        (0.0, 1.0, 0.1),
        (1.0, 0.1, -0.3),
        (0.7, 2.1, 0.2),
    ):
        for dtype in (tf.float32, tf.float64):
            # The number of elements is computed in the operands' type.
            bounds = [tf.constant(v, dtype) for v in (start, limit, delta)]
            on_both(lambda: tf.range(*bounds))  # noqa: B023
    on_both(
        lambda: tf.range(
            tf.constant(10, tf.int64), tf.constant(-3, tf.int64), tf.constant(-4, tf.int64)
        )
    )
    # int32 is in host memory; the same ops work there.
    on_both(lambda x: tf.stack([tf.shape(x)[0], tf.shape(x)[1] * 2]), np.zeros((3, 4), "float32"))
    on_both(
        lambda x: tf.reshape(x, tf.concat([tf.shape(x)[:1], [-1]], 0)),
        np.zeros((3, 4, 5), "float32"),
    )
    on_both(lambda x: tf.broadcast_to(tf.reverse(x, [0]), [2, 3]), np.arange(3, dtype="int32"))


def test_empty_and_scalar_tensors():
    empty, scalar = np.zeros((0, 3), "float32"), np.float32(2.5)
    on_both(lambda x: tf.transpose(x), empty)
    on_both(lambda x: tf.concat([x, x], 0), empty)
    on_both(lambda x: x[:, 1:], empty)
    on_both(lambda x: tf.pad(x, [[1, 1], [0, 0]]), empty)
    on_both(lambda x: tf.stack([x, x]), scalar)
    on_both(lambda x: tf.transpose(x), scalar)
    on_both(lambda x: tf.broadcast_to(x, [2, 0, 3]), scalar)


MOVES = {
    "transpose": lambda x: tf.transpose(x, [1, 2, 0]),
    "strided_slice": lambda x: x[::-2, 1:, ::3],
    "slice": lambda x: tf.slice(x, [1, 1, 0], [2, 2, 5]),
    "tile": lambda x: tf.tile(x, [1, 2, 3]),
    "broadcast_to": lambda x: tf.broadcast_to(x[:, :1], [2, 3, 4, 5]),
    "pad": lambda x: tf.pad(x, [[1, 0], [0, 2], [1, 1]]),
    "reverse": lambda x: tf.reverse(x, [1]),
    "roll": lambda x: tf.roll(x, 2, 1),
    "concat": lambda x: tf.concat([x, 2.0 * x], 2),
    "stack": lambda x: tf.stack([x, 2.0 * x], 1),
    "unstack": lambda x: tf.unstack(x, axis=1)[2],
    "split": lambda x: tf.split(x, [1, 4], axis=2)[1],
}


@pytest.mark.parametrize("name", MOVES)
def test_gradients(rng, name):
    x = rng.normal(size=(3, 4, 5)).astype("float32")

    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = MOVES[name](x)
            loss = tf.reduce_sum(tf.square(y))
        return tape.gradient(loss, x)

    on_both(gradient, x)


@pytest.mark.parametrize(
    ("message", "fn"),
    [
        ("expects a vector of size 2", lambda x: tf.raw_ops.Transpose(x=x, perm=[0])),
        ("slice index 7 of dimension 0 out of bounds", lambda x: x[7]),
        ("Expected size", lambda x: tf.slice(x, [1, 0], [4, 1])),
        ("ConcatOp : Dimension 0", lambda x: tf.raw_ops.ConcatV2(values=[x, x[:1]], axis=1)),
        ("Shapes of all inputs must match", lambda x: tf.raw_ops.Pack(values=[x, x[:1]], axis=0)),
        ("evenly divide", lambda x: tf.raw_ops.Split(axis=1, value=x, num_split=2)),
    ],
)
def test_errors_have_tensorflows_class_and_words(message, fn):
    with tf.device(WGPU), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fn(tf.zeros([3, 3]))


def test_loops_over_tensor_lists(rng):
    x = rng.normal(size=(5, 3)).astype("float32")
    on_both(lambda x: tf.map_fn(lambda row: row * 2.0, x), x, graph=True)
    on_both(lambda x: tf.scan(lambda a, row: a + row, x), x, graph=True)

    def loop(x):
        array = tf.TensorArray(tf.float32, 4)
        _, array = tf.while_loop(
            lambda i, _: i < 4, lambda i, a: (i + 1, a.write(i, x[i] * 3.0)), (0, array)
        )
        return array.stack()

    on_both(loop, x, graph=True)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "int8", "bool", "int32", "int64", "complex64"]
)
@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
def test_parallel_stack_in_a_function(rng, dtype, soft):
    """TensorFlow splits it into parts before it places a function; a part that runs on another
    device would leave zeros here.
    """
    parts = [(rng.normal(size=(3, 5)) * 9).astype(dtype) for _ in range(7)]
    tf.config.set_soft_device_placement(soft)
    try:
        with tf.device(WGPU):

            @tf.function
            def whole(*parts):
                return tf.parallel_stack(parts)

            @tf.function
            def between(*parts):
                # Work before every row, and readers behind the stack.
                if parts[0].dtype.is_bool:
                    parts = [tf.logical_not(p) for p in parts]
                    return tf.reverse(tf.parallel_stack(parts), [0])
                stacked = tf.parallel_stack([p + p for p in parts])
                return tf.reverse(stacked, [0]) + stacked[:1]

            constants = [tf.constant(p) for p in parts]
            for _ in range(3):
                np.testing.assert_array_equal(whole(*constants).numpy(), np.stack(parts))
                got = between(*constants).numpy()
        if dtype == "bool":
            want = ~np.stack(parts)[::-1]
        else:
            doubled = np.stack([p + p for p in parts])
            want = doubled[::-1] + doubled[:1]
        np.testing.assert_array_equal(got, want)
    finally:
        tf.config.set_soft_device_placement(False)


def test_slices_of_keras(rng):
    x, update = values(rng, "float32", 3, 8, 4), values(rng, "float32", 3, 1, 4)
    for at in (0, 5, 7):
        on_both(lambda x, u, at=at: keras.ops.slice_update(x, (0, at, 0), u), x, update)
        on_both(lambda x, at=at: keras.ops.slice(x, (0, at, 0), (3, 1, 4)), x)


#: Trains with an input pipeline, and prints the bits of what comes back, and the copies.
TRAINING = """
    import keras, numpy as np, tensorflow as tf, tensorflow_wgpu
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(1).normal(size=(96, 40)).astype("float32")
    y = np.arange(96, dtype="int32") % 5
    with tf.device("WGPU:0"):
        model = keras.Sequential([keras.layers.Dense(300, "relu"), keras.layers.Dense(5)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss)
        losses = model.fit(x, y, 8, 3, verbose=0, shuffle=False).history["loss"]
        results = [model.predict(x, verbose=0), *model.get_weights()]
    counts = tensorflow_wgpu.statistics()["WGPU:0"]
    print(losses, [hash(np.asarray(r).tobytes()) for r in results])
    print(counts["uploads"] + counts["downloads"], counts["unstaged"])
"""


def test_copies_without_staging_buffers_bring_the_same_bytes():
    found = {}
    for staging in ("on", "off"):
        done = python(TRAINING, TF_WGPU_STAGING=staging, PYTHONHASHSEED="1")
        assert done.returncode == 0, done.stderr
        results, counts = done.stdout.splitlines()[-2:]
        copies, unstaged = map(int, counts.split())
        found[staging] = results
        is_wanted = staging == "off" and shares_memory()
        assert (unstaged > copies / 2) if is_wanted else unstaged == 0, (unstaged, copies)
    assert found["on"] == found["off"]
