"""Random ops draw the numbers of TensorFlow's CPU: uniform floats and integers exactly, normal ones
nearly so.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import CPU, WGPU, on_both, python, run_on

FLOATS = ["float32", "float16", "bfloat16"]
SHAPES = [(), (0, 3), (1,), (7,), (2, 3, 5), (1025,)]
SEEDS = [(1, 2), (0, 0), (-7, 1 << 40)]


def in_ulps(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference in units in the last place of the result."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if got.size == 0:
        return 0.0
    digits = {"float32": 23, "float16": 10, "bfloat16": 7}[want.dtype.name]
    wide = want.astype("float64")
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(wide), 1e-30))) - digits)
    return float(np.max(np.abs(got.astype("float64") - wide) / unit))


# A float16 or bfloat16 is a rounded float32, which may be on the other side of a tie.
ULPS = {"float32": 4.0, "float16": 1.0, "bfloat16": 1.0}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("seed", SEEDS)
def test_stateless_uniform(dtype: str, seed: tuple[int, int]) -> None:
    for shape in SHAPES:
        on_both(
            lambda s, shape=shape: tf.random.stateless_uniform(shape, s, dtype=dtype),
            np.int64(seed),
            rtol=0,
            atol=0,
        )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("draw", [tf.random.stateless_normal, tf.random.stateless_truncated_normal])
def test_stateless_normal(draw, dtype: str) -> None:
    for seed in SEEDS:
        for shape in SHAPES:

            def fn(s, shape=shape):
                return draw(shape, s, dtype=dtype)

            (want,) = run_on(CPU, fn, np.int64(seed))
            for graph in (False, True):
                (got,) = run_on(WGPU, fn, np.int64(seed), graph=graph)
                assert in_ulps(got, want) <= ULPS[dtype], f"{shape} {seed}"


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("bounds", [(-3, 4), (0, 1), (-(2**31), 2**31 - 1), (5, 1000003)])
def test_stateless_bounded_int(dtype: str, bounds: tuple[int, int]) -> None:
    low, high = bounds
    for seed in SEEDS:
        for shape in SHAPES:
            on_both(
                lambda s, shape=shape: tf.random.stateless_uniform(
                    shape, s, low, high, dtype=dtype
                ),
                np.int64(seed),
            )


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_stateless_full_int(dtype: str) -> None:
    for seed in SEEDS:
        for shape in SHAPES:
            on_both(
                lambda s, shape=shape: tf.random.stateless_uniform(
                    shape, s, None, None, dtype=dtype
                ),
                np.int64(seed),
            )


@pytest.mark.parametrize("seed_type", ["int32", "int64"])
def test_first_versions_and_key_counter(seed_type: str) -> None:
    ops = tf.raw_ops

    def fn(seed):
        return [
            *ops.StatelessRandomGetKeyCounter(seed=seed),
            *ops.StatelessRandomGetKeyCounterAlg(seed=seed),
            ops.StatelessRandomGetAlg(),
            ops.StatelessRandomUniform(shape=[3, 5], seed=seed),
            ops.StatelessRandomUniformInt(shape=[9], seed=seed, minval=-5, maxval=6),
            ops.StatelessRandomUniformFullInt(shape=[9], seed=seed, dtype=tf.uint64),
        ]

    on_both(fn, np.array([-3, 12], seed_type), rtol=0, atol=0)


@pytest.mark.parametrize("n", [4 * 256 * 65535 + 5])
def test_more_workgroups_than_one_dimension_has(n: int) -> None:
    def fn(seed):
        return tf.raw_ops.StatelessRandomUniform(shape=[n], seed=seed, dtype="bfloat16")

    (want,), (got,) = run_on(CPU, fn, np.int64([3, 4])), run_on(WGPU, fn, np.int64([3, 4]))
    assert np.array_equal(got.view("uint16"), want.view("uint16"))


def stream(device: str, draw, graph: bool) -> list[np.ndarray]:
    """Three consecutive results of a stateful op from the global seed 5."""
    tf.random.set_seed(5)
    with tf.device(device):
        fn = tf.function(draw) if graph else draw
        return [fn().numpy() for _ in range(3)]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_stateful_streams(dtype: str, graph: bool) -> None:
    for draw, limit in [
        (lambda: tf.random.uniform([33], dtype=dtype), 0),
        (lambda: tf.random.normal([33], dtype=dtype, seed=9), ULPS[dtype]),
        (lambda: tf.random.truncated_normal([33], dtype=dtype), ULPS[dtype]),
    ]:
        got, want = stream(WGPU, draw, graph), stream(CPU, draw, graph)
        assert not np.array_equal(got[0], got[1])
        for g, w in zip(got, want):
            assert in_ulps(g, w) <= limit


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_stateful_integers(dtype: str, graph: bool) -> None:
    def draw():
        return tf.random.uniform([21], -10, 1000, dtype=dtype)

    for got, want in zip(stream(WGPU, draw, graph), stream(CPU, draw, graph)):
        np.testing.assert_array_equal(got, want)


def test_no_seed_gives_new_numbers_in_each_process() -> None:
    code = """
        import tensorflow as tf
        with tf.device("WGPU:0"):
            print("DRAWN", tf.random.uniform([4]).numpy().tobytes().hex())
    """
    lines = {
        next(x for x in python(code).stdout.splitlines() if x.startswith("DRAWN")) for _ in range(2)
    }
    assert len(lines) == 2


def generator_results(device: str) -> list[np.ndarray]:
    with tf.device(device):
        g = tf.random.Generator.from_seed(1234)
        results = [
            g.uniform([5, 3]),
            g.uniform([7], -3, 1000, dtype=tf.int64),
            g.uniform_full_int([6], dtype=tf.uint32),
            g.normal([64]),
            g.truncated_normal([64]),
            g.uniform([2], dtype=tf.float16),
        ]
        g.skip(10)
        results += [g.uniform([4]), g.state]
    return [r.numpy() for r in results]


def test_generator() -> None:
    for got, want in zip(generator_results(WGPU), generator_results(CPU)):
        if got.dtype.kind == "f" and got.dtype != np.float16:
            assert in_ulps(got, want) <= ULPS["float32"]
        else:
            np.testing.assert_array_equal(got, want)


def state_ops(device: str) -> list[np.ndarray]:
    """The ops that draw from a variable. Python's Generator no longer uses them, but saved graphs
    contain them.
    """
    ops = tf.raw_ops
    with tf.device(device):
        state = tf.Variable(tf.constant([-1, 2, 3], tf.int64))
        common = {"resource": state.handle, "algorithm": tf.constant(1, tf.int64), "shape": [5]}
        results = [
            ops.StatefulUniform(**common, dtype=tf.float32),
            ops.StatefulUniformFullInt(**common, dtype=tf.uint64),
            ops.StatefulUniformInt(
                **common, minval=tf.constant(1, tf.int64), maxval=tf.constant(9, tf.int64)
            ),
        ]
        ops.RngSkip(
            resource=state.handle,
            algorithm=tf.constant(1, tf.int64),
            delta=tf.constant(3, tf.int64),
        )
        results.append(
            ops.RngReadAndSkip(resource=state.handle, alg=1, delta=tf.constant(2, tf.uint64))
        )
        results += [ops.StatefulStandardNormalV2(**common, dtype=tf.float32), state.read_value()]
    return [r.numpy() for r in results]


def test_ops_on_a_state_variable() -> None:
    for got, want in zip(state_ops(WGPU), state_ops(CPU)):
        if got.dtype == np.float32:
            assert in_ulps(got, want) <= ULPS["float32"]
        else:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("graph", [False, True])
def test_dropout_masks_are_the_cpus(graph: bool) -> None:
    x = np.ones((37, 19), "float32")

    def masks(device: str) -> list[np.ndarray]:
        keras.utils.set_random_seed(7)
        with tf.device(device):
            layer = keras.layers.Dropout(0.3, seed=11)
            fn = (
                tf.function(lambda v: layer(v, training=True))
                if graph
                else lambda v: layer(v, training=True)
            )
            return [np.asarray(fn(tf.constant(x))) for _ in range(3)]

    got, want = masks(WGPU), masks(CPU)
    assert not np.array_equal(got[0], got[1])
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["glorot_uniform", "he_normal", "random_uniform", "truncated_normal", "lecun_normal"]
)
def test_initializers(name: str) -> None:
    def weights(device: str) -> np.ndarray:
        keras.utils.set_random_seed(3)
        with tf.device(device):
            return np.asarray(keras.initializers.get(name)((24, 31)))

    np.testing.assert_allclose(weights(WGPU), weights(CPU), rtol=1e-6, atol=1e-8)


def test_categorical_draws_by_probability() -> None:
    with tf.device(WGPU):
        logits = tf.math.log(tf.constant([[0.5, 0.0, 0.25, 0.25], [0.1, 0.9, 0.0, 0.0]]))
        drawn = tf.random.stateless_categorical(logits, 20000, seed=(1, 2)).numpy()
        again = tf.random.stateless_categorical(logits, 20000, seed=(1, 2)).numpy()
        other = tf.random.categorical(logits, 20000, dtype=tf.int32).numpy()
    np.testing.assert_array_equal(drawn, again)
    for sample in (drawn, other):
        shares = np.stack([np.bincount(row, minlength=4) / row.size for row in sample])
        np.testing.assert_allclose(shares, [[0.5, 0, 0.25, 0.25], [0.1, 0.9, 0, 0]], atol=0.015)


def test_binomials_of_a_generator():
    def draw(device):
        with tf.device(device):
            generator = tf.random.Generator.from_seed(7)
            first = generator.binomial([50, 2], counts=[5.0, 400.0], probs=[0.3, 0.7])
            return first.numpy(), generator.binomial([3], counts=9.0, probs=0.5).numpy()

    for got, want in zip(draw(WGPU), draw(CPU)):
        np.testing.assert_array_equal(got, want)
