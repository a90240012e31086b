"""Programs with loops and branches, as users write them. Each is a function of one float tensor of
shape [4, 6] and one of shape [6, 6].
"""

from collections.abc import Callable

import tensorflow as tf

Program = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def _cell(w: tf.Tensor, state: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    return tf.tanh(tf.matmul(x, w) + 0.5 * state)


def while_loop(x, w):
    """Products and activations carried from step to step."""
    return tf.while_loop(
        lambda i, _: i < 3, lambda i, h: (i + 1, _cell(w, h, h)), [0, x], maximum_iterations=5
    )[1]


def reshaped_projection(x, w):
    """A decoder's block: the step's activation is reshaped between products of two ranks."""

    def body(i, h):
        y = h + tf.matmul(h, tf.expand_dims(w, 0))
        gate = tf.nn.silu(tf.matmul(tf.reshape(y, [4, 6]), w))
        return i + 1, y + tf.reshape(tf.matmul(gate, w), [1, 4, 6])

    return tf.while_loop(lambda i, _: i < 3, body, [0, tf.expand_dims(x, 0)])[1]


def nested(x, w):
    """A loop in a loop, with products in both."""

    def inner(j, h):
        return j + 1, tf.nn.relu(tf.matmul(h, w)) * 0.5 + h

    def outer(i, h):
        h = tf.while_loop(lambda j, _: j < i + 1, inner, [0, h])[1]
        return i + 1, h / (1.0 + tf.reduce_mean(tf.abs(h)))

    return tf.while_loop(lambda i, _: i < 3, outer, [0, x])[1]


def cond_in_loop(x, w):
    """A branch in each step, by a number and by a computed value."""

    def body(i, h):
        h = tf.cond(i % 2 == 0, lambda: tf.matmul(h, w), lambda: tf.nn.softmax(h) * 2.0)
        h = tf.cond(tf.reduce_sum(h) > 0.0, lambda: h * 0.5, lambda: h + tf.reduce_mean(w))
        return i + 1, h

    return tf.while_loop(lambda i, _: i < 4, body, [0, x])[1]


def loop_in_cond(x, w):
    """A loop in one branch, a constant and a reduction in the other."""

    def loop():
        return tf.while_loop(lambda i, _: i < 3, lambda i, h: (i + 1, _cell(w, h, x)), [0, x])[1]

    first = tf.cond(tf.reduce_sum(x) > 1e6, lambda: tf.ones_like(x), loop)
    second = tf.cond(
        tf.reduce_sum(x) < 1e6, lambda: tf.reduce_mean(x, -1, keepdims=True), lambda: x[:, :1]
    )
    return first + second


def two_conditions(x, w):
    """Loops that end by a computed value or by a count, whichever comes first."""

    def go(i, h):
        return tf.logical_and(i < 6, tf.reduce_max(tf.abs(h)) < 4.0)

    return tf.while_loop(go, lambda i, h: (i + 1, tf.matmul(h, w) + x), [0, x])[1]


def scan(x, w):
    """A recurrence over rows."""
    return tf.scan(lambda h, row: tf.tanh(tf.linalg.matvec(w, h) + row), x, tf.zeros_like(x[0]))


def map_fn(x, w):
    """A function of each row, with a normalization."""

    def row(r):
        y = tf.linalg.matvec(w, r)
        return (y - tf.reduce_mean(y)) * tf.math.rsqrt(tf.math.reduce_variance(y) + 1e-3)

    return tf.map_fn(row, x)


def fold(x, w):
    """Sums from the right, with a product."""
    return tf.foldr(lambda a, r: a * 0.5 + tf.linalg.matvec(w, r), x, tf.zeros_like(x[0]))


def vectorized_map(x, w):
    """One function over many rows at once, by pfor."""
    return tf.vectorized_map(lambda r: tf.nn.softmax(tf.linalg.matvec(w, r)) * tf.reduce_sum(r), x)


def vectorized_loop(x, w):
    """pfor over a loop: a while loop of batches."""

    def step(r):
        return tf.while_loop(
            lambda i, _: i < 3, lambda i, h: (i + 1, tf.tanh(tf.linalg.matvec(w, h) + r)), [0, r]
        )[1]

    return tf.vectorized_map(step, x)


def vectorized_scan(x, w):
    """pfor over a recurrence, whose gradient keeps its steps in lists."""

    def step(rows):
        return tf.scan(
            lambda h, r: tf.tanh(tf.linalg.matvec(w, h) + r), rows, tf.zeros_like(rows[0])
        )

    return tf.vectorized_map(step, tf.stack([x, x * 0.5, x + 1.0]))


def tensor_array(x, w):
    """Steps that write into a TensorArray and read the elements of earlier steps."""
    rows = tf.TensorArray(tf.float32, 4, element_shape=[6], clear_after_read=False)
    rows = rows.write(0, x[0])

    def body(i, rows):
        return i + 1, rows.write(i, tf.tanh(tf.linalg.matvec(w, rows.read(i - 1)) + x[i]))

    return tf.while_loop(lambda i, _: i < 4, body, [1, rows])[1].stack()


def unstacked(x, w):
    """Rows taken out of a TensorArray, results of two sizes concatenated."""
    rows = tf.TensorArray(tf.float32, 4).unstack(x)
    out = tf.TensorArray(tf.float32, 4, element_shape=[None], infer_shape=False)

    def body(i, out):
        row = tf.linalg.matvec(w, rows.read(i))
        return i + 1, out.write(i, row[: 2 + i])

    return tf.while_loop(lambda i, _: i < 4, body, [0, out])[1].concat()


def ragged_map(x, w):
    """A function of rows of several lengths."""
    ragged = tf.RaggedTensor.from_row_lengths(tf.reshape(x, [-1]), [3, 0, 14, 7])
    means = tf.map_fn(
        lambda r: tf.reduce_sum(r * 0.5) + tf.reduce_sum(w) * 0.01,
        ragged,
        fn_output_signature=tf.TensorSpec([], tf.float32),
    )
    return means + tf.reduce_sum(ragged, axis=1)


def cached_decoder(x, w):
    """Attention over a cache of which each step writes one row, as in generation."""

    def body(i, h, keys, values):
        query = tf.matmul(h, w)
        at = tf.reshape(i, [1, 1])
        keys = tf.tensor_scatter_nd_update(keys, at, query)
        values = tf.tensor_scatter_nd_update(values, at, tf.nn.gelu(h))
        scores = tf.matmul(query, keys, transpose_b=True) / 2.5
        scores = tf.where(tf.range(4)[None] <= i, scores, -1e9)
        h = tf.matmul(tf.nn.softmax(scores), values) + x[i][None]
        return (
            i + 1,
            h / tf.sqrt(tf.reduce_mean(tf.square(h), -1, keepdims=True) + 1e-3),
            keys,
            values,
        )

    start = [0, x[:1], tf.zeros([4, 6]), tf.zeros([4, 6])]
    return tf.while_loop(lambda i, *_: i < 4, body, start)[1]


def sliced_cache(x, w):
    """The same with XLA's slice updates, as in Keras."""

    def body(i, cache):
        row = tf.tanh(tf.matmul(cache[i][None], w))
        before, after = cache[: i + 1], cache[i + 2 :]
        return i + 1, tf.ensure_shape(tf.concat([before, row, after], 0), [4, 6])

    return tf.while_loop(
        lambda i, _: i < 3, body, [0, x], [tf.TensorShape([]), tf.TensorShape([4, 6])]
    )[1]


def greedy(x, w):
    """Tokens chosen by argmax, until one ends the sentence."""

    def body(i, tokens, h):
        logits = tf.matmul(h, w)
        token = tf.argmax(logits[-1], output_type=tf.int32)
        tokens = tf.tensor_scatter_nd_update(tokens, [[i]], [token])
        return i + 1, tokens, h * 0.9 + tf.one_hot(token, 6)[None] * 0.3

    def go(i, tokens, _):
        return tf.logical_and(i < 5, tf.logical_not(tf.reduce_any(tokens == 9)))

    _, tokens, h = tf.while_loop(go, body, [0, tf.zeros([5], tf.int32), x])
    return h + tf.cast(tf.reduce_sum(tokens), tf.float32)


def case(x, w):
    """One of several functions in each step."""
    parts = [lambda h: tf.matmul(h, w), tf.nn.relu, lambda h: h - tf.reduce_max(h), tf.sigmoid]

    def body(i, h):
        return i + 1, tf.switch_case(i, [lambda part=part: part(h) for part in parts])

    return tf.while_loop(lambda i, _: i < 4, body, [0, x])[1]


def reductions(x, w):
    """Reductions of reductions, moments and a loss in each step."""

    def body(i, h, loss):
        mean = tf.reduce_mean(tf.reduce_sum(h * w[:4], -1))
        error = tf.reduce_mean(tf.reduce_mean(tf.math.squared_difference(h, x), -1))
        return i + 1, h + 0.1 * mean, loss + error

    _, h, loss = tf.while_loop(lambda i, *_: i < 3, body, [0, x * 0.5, 0.0])
    return h + loss


def siblings(x, w):
    """Products of one operand, biases and gates, as a recurrent cell has them."""

    def body(i, h, c):
        i_, f, o = (tf.sigmoid(tf.matmul(h, w + k) + w[0]) for k in (0.0, 0.1, 0.2))
        c = f * c + i_ * tf.tanh(tf.matmul(h, w))
        return i + 1, o * tf.tanh(c), c

    return tf.while_loop(lambda i, *_: i < 3, body, [0, x, tf.zeros_like(x)])[1]


def convolution(x, w):
    """A convolution with bias and activation in each step."""
    kernel = tf.reshape(w[:3, :3], [3, 3, 1, 1])

    def body(i, h):
        y = tf.nn.conv2d(tf.pad(h, [[0, 0], [1, 1], [1, 1], [0, 0]]), kernel, 1, "VALID")
        return i + 1, tf.nn.relu(tf.nn.bias_add(y, w[0, :1])) * 0.3 + h

    return tf.while_loop(lambda i, _: i < 2, body, [0, tf.reshape(x, [1, 4, 6, 1])])[1]


PROGRAMS: list[Program] = [
    while_loop,
    reshaped_projection,
    nested,
    cond_in_loop,
    loop_in_cond,
    two_conditions,
    scan,
    map_fn,
    fold,
    vectorized_map,
    vectorized_loop,
    vectorized_scan,
    tensor_array,
    unstacked,
    ragged_map,
    cached_decoder,
    sliced_cache,
    greedy,
    case,
    reductions,
    siblings,
    convolution,
]


def forward(program: Program) -> Program:
    """The program itself."""
    return program


def gradient(program: Program) -> Program:
    """The gradients of a loss with respect to both arguments, added up."""

    def gradients(x, w):
        with tf.GradientTape() as tape:
            tape.watch([x, w])
            loss = tf.reduce_sum(tf.sin(program(x, w)))
        return tf.concat([tf.reshape(g, [-1]) for g in tape.gradient(loss, [x, w])], 0)

    return gradients


def second(program: Program) -> Program:
    """The gradients of the gradients."""
    return gradient(gradient(program))


ORDERS = [forward, gradient, second]
