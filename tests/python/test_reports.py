"""Public reports of programs that other devices or compilers compute wrongly, rewritten in a few
lines each without their code. They run eagerly, in a function, and in a function that asks for XLA,
and are compared with the CPU.
"""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, assert_close, run_on

raw = tf.raw_ops


def on_all(fn: Callable, *arrays: np.ndarray, rtol: float | None = None) -> list[np.ndarray]:
    """Runs `fn` on the CPU and in three ways on WGPU, compares, and returns WGPU's last results."""
    want = run_on(CPU, fn, *arrays)
    got: list[np.ndarray] = []
    for wrap in (lambda f: f, tf.function, lambda f: tf.function(f, jit_compile=True)):
        got = run_on(WGPU, wrap(fn), *arrays)
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert_close(g, w, rtol, rtol)
    return got


def floats(rng: np.random.Generator, *shape: int, high: float = 1) -> np.ndarray:
    return rng.uniform(0, high, shape).astype("float32")


def small_integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype("int8")


def test_cosine_of_a_convolution(rng):
    """tensorflow/tensorflow 62478: the cosine of a convolution's sums is far off, because the sums
    are less precise than float32. The cosine of our own sums must be right, whatever their size.
    """
    x, filters = floats(rng, 2, 9, 9, 32, high=30), floats(rng, 3, 3, 32, 4, high=3)

    def model(x, filters):
        sums = tf.nn.conv2d(x, filters, strides=1, padding="VALID")
        return sums, tf.cos(sums)

    for wrap in (tf.function, lambda f: tf.function(f, jit_compile=True)):
        sums, cosines = run_on(WGPU, wrap(model), x, filters)
        assert_close(sums, run_on(CPU, model, x, filters)[0], rtol=2e-6)
        assert_close(cosines, np.cos(sums.astype("float64")).astype("float32"), rtol=1e-6)


def test_tangent_of_a_long_sum(rng):
    """tensorflow/tensorflow 62485: a filter of 8,147 taps, dilated along its dimension of one row,
    and the tangent of the result.
    """
    x, filters = floats(rng, 1, 1, 8160, 1), floats(rng, 1, 8147, 1, 1)

    def model(x, filters):
        sums = tf.nn.conv2d(x, filters, strides=1, padding="VALID", dilations=(2, 1))
        return sums, tf.tan(sums)

    for wrap in (tf.function, lambda f: tf.function(f, jit_compile=True)):
        sums, tangents = run_on(WGPU, wrap(model), x, filters)
        # The CPU's own sums in float32 are off by 3e-6.
        wide = np.convolve(x.astype("float64").ravel(), filters.astype("float64").ravel()[::-1])
        assert_close(sums.ravel(), wide[8146:8160].astype("float32"), rtol=2e-6)
        assert_close(tangents, np.tan(sums.astype("float64")).astype("float32"), rtol=1e-5)


def test_dilated_convolution_times_its_cosine(rng):
    """tensorflow/tensorflow 62488: an atrous convolution, its cosine, and the product of both."""
    x, filters = floats(rng, 1, 20, 20, 4), floats(rng, 3, 3, 4, 4) - 0.5

    def model(x, filters):
        sums = tf.nn.atrous_conv2d(x, filters, rate=2, padding="VALID")
        return sums, tf.cos(sums), tf.multiply(sums, tf.cos(sums))

    on_all(model, x, filters, rtol=2e-5)


def test_outputs_besides_a_ceiling(rng):
    """tensorflow/tensorflow 62532: rounding up after a cast, with transposed copies as further
    outputs, which changed the first output.
    """

    def model(x):
        values = tf.cast(x, tf.float32) / 3
        up = tf.math.ceil(values)
        turned = tf.transpose(up)
        return up, turned, tf.math.ceil(turned + values), tf.transpose(values)

    on_all(model, small_integers(rng, 6, 6))


def test_outputs_besides_a_reversal(rng):
    """tensorflow/tensorflow 62548: floor of a transposed tensor, reversed, added, and concatenated
    in further outputs.
    """

    def model(x, y):
        down = tf.floor(tf.transpose(x, [1, 0, 2]))
        back = tf.reverse(down, axis=[0, 2])
        total = tf.add(back, y)
        return total, tf.concat([total, down], 1), tf.concat([back, y], 2)

    on_all(model, 9 * floats(rng, 5, 7, 3), floats(rng, 7, 5, 3))


def test_outputs_besides_a_sliced_product(rng):
    """tensorflow/tensorflow 62527: the product of every fourth column of a concatenation, with its
    transposed copy as a second output.
    """

    def model(x, y):
        columns = tf.concat([x, y], axis=1)[:, -17:17:4]
        product = tf.matmul(columns, columns, transpose_b=True)
        return product, tf.transpose(product), tf.transpose(columns)

    on_all(model, floats(rng, 6, 9), floats(rng, 6, 11))


def test_outputs_besides_a_maximum(rng):
    """tensorflow/tensorflow 62521 and 62528: maxima of small integers whose products and sums
    wrap, with transposed copies and indices as further outputs.
    """

    def model(x, y):
        total = tf.add(y, x)
        upper = tf.experimental.numpy.triu(total, k=0)
        magnitude = tf.abs(tf.multiply(y, y))
        return (
            tf.reduce_max(upper, axis=1),
            tf.transpose(upper),
            tf.reduce_max(magnitude, axis=0),
            tf.argmax(magnitude, axis=0),
        )

    on_all(model, small_integers(rng, 13, 1), small_integers(rng, 13, 60))


@pytest.mark.parametrize("spatial", [2, 3])
def test_gradient_of_a_pool_without_elements(spatial):
    """tensorflow/tensorflow 57497 and 57502: the process ended if a dimension of a pool's input had
    no elements.
    """
    pool = raw.MaxPool3DGrad if spatial == 3 else raw.MaxPoolGrad
    x = np.zeros((3, *(10, 0, 7)[:spatial], 5), "float32")
    y = np.zeros((3, *(4, 0, 4)[:spatial], 5), "float32")

    def gradient(x, y, dy):
        return pool(
            orig_input=x,
            orig_output=y,
            grad=dy,
            ksize=[1, *(16, 10, 31)[:spatial], 1],
            strides=[1, *(3, 1, 2)[:spatial], 1],
            padding="SAME",
        )

    for graph in (False, True):
        assert run_on(WGPU, gradient, x, y, y, graph=graph)[0].shape == x.shape


def test_indices_of_maxima_with_the_batch(rng):
    """tensorflow/tensorflow 22025 and 33403: with and without the image in a maximum's index, on a
    GPU the image was left out in both.
    """
    x = rng.integers(0, 10, (2, 4, 4, 1)).astype("float32")
    for batch in (False, True):
        on_all(
            lambda x, batch=batch: tf.nn.max_pool_with_argmax(
                x, 2, 2, "SAME", include_batch_in_index=batch
            ),
            x,
        )


def test_argmax_out_of_range():
    """tensorflow/tensorflow 94382: indices that no pool returns ended the process. They read as
    0.
    """
    wild = [0, 25288767438848, -1099511627776, -1, 4294967295]
    with tf.device(WGPU):
        got = raw.MaxPoolGradGradWithArgmax(
            input=tf.zeros([5, 1, 1, 1]),
            grad=tf.ones([5, 1, 1, 1]),
            argmax=tf.reshape(tf.constant(wild, tf.int64), [5, 1, 1, 1]),
            ksize=[1, 1, 1, 1],
            strides=[1, 1, 1, 1],
            padding="VALID",
            include_batch_in_index=True,
        )
    np.testing.assert_array_equal(tf.reshape(got, [-1]), [1, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("rows", "columns", "full"), [(50, 9, True), (32, 32, False)], ids=["45756", "28518"]
)
def test_singular_values(rng, rows, columns, full):
    """tensorflow/tensorflow 45756: vectors of a tall matrix differ between CPU and GPU by more than
    their signs. 28518: a square matrix of 2048 rows never ends (here a smaller one).
    """
    x = floats(rng, rows, columns)
    want = run_on(CPU, lambda x: tf.linalg.svd(x, compute_uv=False), x)[0]
    for graph in (False, True):
        s, u, v = run_on(WGPU, lambda x: tf.linalg.svd(x, full_matrices=full), x, graph=graph)
        assert_close(s, want, rtol=1e-5, atol=1e-5 * want[0])
        k = min(rows, columns)
        assert_close((u[:, :k] * s) @ v[:, :k].T, x, atol=1e-4)
        for q in (u, v):
            assert_close(q.T @ q, np.eye(q.shape[1], dtype="float32"), atol=1e-4)


def test_a_simple_rnn_learns_sentences(rng):
    """tensorflow/tensorflow 56082: a SimpleRNN over 500 words did not run on a GPU at all. Its
    losses are the CPU's, and decrease.
    """
    words = rng.integers(1, 10_000, (24, 500))
    # The last words of half of the sentences tell them from the others.
    words[:12, -3:] = 7
    labels = (np.arange(24) < 12).astype("float32")
    losses = {}
    for device in (CPU, WGPU):
        tf.keras.utils.set_random_seed(1)
        with tf.device(device):
            model = tf.keras.Sequential(
                [
                    tf.keras.layers.Embedding(10_000, 10),
                    tf.keras.layers.SimpleRNN(32),
                    tf.keras.layers.Dense(1, "sigmoid"),
                ]
            )
            model.compile(tf.keras.optimizers.Adam(0.002), "binary_crossentropy")
            losses[device] = [float(model.train_on_batch(words, labels)) for _ in range(6)]
    assert_close(losses[WGPU], losses[CPU], rtol=1e-3)
    assert losses[WGPU][-1] < losses[WGPU][0] - 0.05
