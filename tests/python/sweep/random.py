"""Random ops: ops with a seed draw the CPU's numbers.

Multinomial and StochasticCastToInt do not, and are compared by their statistics.
"""

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute

from .core import case

ALIKE = {
    "float16": (1e-3, 1e-6),
    "bfloat16": (1e-2, 1e-6),
    "float32": (2e-6, 1e-6),
    "float64": (1e-13, 1e-14),
}
SHAPES = [(3, 7), (0, 2), (), (1025,)]
SEED = np.array([-7, 1 << 40], np.int64)


def shape_of(dims):
    return np.array(dims, np.int32)


def bounds(t, attr):
    return dict(minval=t.integers(attr, (), -9, 0), maxval=t.integers(attr, (), 5, 1000))


@case(
    "StatelessRandomUniform",
    "StatelessRandomNormal",
    "StatelessTruncatedNormal",
    "StatelessRandomUniformFullInt",
    tol=ALIKE,
)
def seeded(t):
    for dims in SHAPES:
        yield dict(shape=shape_of(dims), seed=SEED, dtype=t["dtype"])


@case("StatelessRandomUniformInt")
def seeded_integers(t):
    for dims in SHAPES:
        yield dict(shape=shape_of(dims), seed=SEED, **bounds(t, "dtype"))


def keyed_arguments(dims):
    return dict(
        shape=shape_of(dims),
        key=np.array([5], np.uint64),
        counter=np.array([3, 4], np.uint64),
        alg=np.int32(1),
    )


@case(
    "StatelessRandomUniformV2",
    "StatelessRandomNormalV2",
    "StatelessTruncatedNormalV2",
    "StatelessRandomUniformFullIntV2",
    tol=ALIKE,
)
def keyed(t):
    for dims in SHAPES:
        yield dict(**keyed_arguments(dims), dtype=t["dtype"])


@case("StatelessRandomUniformIntV2")
def keyed_integers(t):
    for dims in SHAPES:
        yield dict(**keyed_arguments(dims), **bounds(t, "dtype"))


# TensorFlow computes in float64 for every type.
@case(
    "StatelessRandomGammaV2",
    "StatelessRandomGammaV3",
    gradient=False,
    tol={**ALIKE, "float32": (2e-5, 1e-6), "float64": (1e-12, 1e-14)},
)
def gamma(t):
    if t["dtype"] == tf.bfloat16:
        # TensorFlow registers kernels of a type that its op refuses.
        yield t.program(lambda: refused(t.op))
        return
    for dims, alphas in [((50, 3), (3,)), ((2, 5), (2, 5)), ((0, 3), (3,)), ((7,), ())]:
        common = dict(alpha=t.uniform("dtype", alphas, 0.3, 5))
        if t.op.endswith("V3"):
            yield dict(**keyed_arguments(dims), **common)
        else:
            yield dict(shape=shape_of(dims), seed=SEED, **common)


def refused(op):
    alpha = tf.constant(1.0, tf.bfloat16)
    try:
        if op.endswith("V3"):
            tf.raw_ops.StatelessRandomGammaV3(**keyed_arguments((2,)), alpha=alpha)
        else:
            tf.raw_ops.StatelessRandomGammaV2(shape=shape_of((2,)), seed=SEED, alpha=alpha)
    except (tf.errors.InvalidArgumentError, TypeError):
        return tf.constant([1.0])
    return tf.constant([0.0])


@case("StatelessRandomGetKeyCounter", "StatelessRandomGetKeyCounterAlg")
def key_and_counter(t):
    yield dict(seed=SEED)
    yield dict(seed=SEED.astype("int32"))


@case("StatelessRandomGetAlg")
def algorithm(t):
    del t
    yield dict()


def fresh_seeds(t):
    """A kernel whose attributes were used before continues its stream."""
    return dict(seed=5, seed2=int(t.rng.integers(1, 1 << 40)))


@case("RandomUniform", "RandomStandardNormal", "TruncatedNormal", tol=ALIKE)
def stateful(t):
    for dims in SHAPES:
        yield dict(shape=shape_of(dims), dtype=t["dtype"], **fresh_seeds(t))


@case("RandomUniformInt")
def stateful_integers(t):
    for dims in SHAPES:
        yield dict(shape=shape_of(dims), **fresh_seeds(t), **bounds(t, "Tout"))


def draw(t, dims, **arguments):
    """The numbers that a generator's op draws, and the state after it."""

    def run():
        state = tf.Variable(tf.constant([-1, 2, 3], tf.int64))
        raw = getattr(tf.raw_ops, t.op)
        drawn = raw(
            resource=state.handle,
            algorithm=tf.constant(1, tf.int64),
            shape=shape_of(dims),
            **arguments,
        )
        return drawn, state.read_value()

    return t.program(run)


@case(
    "StatefulUniform",
    "StatefulStandardNormalV2",
    "StatefulTruncatedNormal",
    "StatefulUniformFullInt",
    tol=ALIKE,
)
def of_a_generator(t):
    for dims in SHAPES:
        yield draw(t, dims, dtype=t["dtype"])


@case("StatefulUniformInt")
def integers_of_a_generator(t):
    for dims in SHAPES:
        yield draw(t, dims, **bounds(t, "dtype"))


@case("StatefulRandomBinomial")
def binomials_of_a_generator(t):
    many = [10, 200, 3000] if t["T"] == tf.float16 else [10, 200, 2_000_000]
    for shape, counts, probs in [
        ((40, 3), many, [0.3, 0.6, 0.98]),
        ((5, 2, 3), [[20], [60]], [0.1, 0.5, 0.9]),
        ((100,), 30, 0.45),
        ((2, 3), [7, -1, 5], [1.5, 0.5, -1]),
        ((0, 2), [1, 2], 0.5),
        ((), 4, 0.5),
    ]:

        def run(shape=shape, counts=counts, probs=probs):
            state = tf.Variable(tf.constant([-1, 2, 3], tf.int64))
            drawn = tf.raw_ops.StatefulRandomBinomial(
                resource=state.handle,
                algorithm=tf.constant(1, tf.int64),
                shape=tf.constant(shape, tf.int32),
                counts=tf.cast(counts, t["T"]),
                probs=tf.cast(probs, t["T"]),
                dtype=t["dtype"],
            )
            return drawn, state.read_value()

        yield t.program(run)


@case("RngSkip", "RngReadAndSkip")
def skip(t):
    def run():
        state = tf.Variable(tf.constant([-1, 2, 3], tf.int64))
        if t.op == "RngSkip":
            tf.raw_ops.RngSkip(
                resource=state.handle,
                algorithm=tf.constant(1, tf.int64),
                delta=tf.constant(3, tf.int64),
            )
            return state.read_value()
        before = tf.raw_ops.RngReadAndSkip(
            resource=state.handle, alg=1, delta=tf.constant(3, tf.uint64)
        )
        return before, state.read_value()

    yield t.program(run)


def drawn_alike(got, want):
    """The same shares of classes, within some four standard deviations."""
    for g, w in zip(got, want):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        if g.size > 1000:
            shares = [np.bincount(x.ravel(), minlength=4) / x.size for x in (g, w)]
            np.testing.assert_allclose(*shares, atol=0.03)


@case("Multinomial", "StatelessMultinomial", compare=drawn_alike)
def multinomial(t):
    logits = np.log([[0.5, 1e-9, 0.25, 0.25]]).astype(t.numpy("T"))
    for batch, samples in [(1, 8000), (3, 0), (0, 5)]:
        common = dict(
            logits=np.repeat(logits, batch, 0),
            num_samples=np.int32(samples),
            output_dtype=t["output_dtype"],
        )
        yield dict(**common, seed=SEED if t.op == "StatelessMultinomial" else 5)


def rounded_alike(got, want):
    """The same integers, and means within some five standard deviations."""
    for g, w in zip(got, want):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(
            g.astype("float64"),
            w.astype("float64"),
            rtol=0,
            atol=0.06 if g.dtype.kind == "f" else 0,
        )


@case("StochasticCastToInt", compare=rounded_alike)
def stochastic_cast(t):
    source, target = t["Tin"], t["Tout"]

    def cast(values):
        # The op has no function in tf.raw_ops.
        arguments = [tf.constant(np.asarray(values), source)]
        arguments += [tf.constant([7], tf.uint64), tf.constant([3, 4], tf.uint64), tf.constant(1)]
        attributes = ("Tin", source.as_datatype_enum, "Tout", target.as_datatype_enum)
        return execute.execute(b"StochasticCastToInt", 1, arguments, attributes, context.context())[
            0
        ]

    def mean(value):
        return tf.constant(np.mean(cast(np.full(5000, value)).numpy(), dtype="float64"))

    yield t.program(lambda: [mean(2.25), mean(-2.25)])
    yield t.program(
        lambda: [cast([np.nan, 5, -7, 0, 300, -300]), cast(np.zeros((0, 2))), cast(-3.0)]
    )


def alike(got, want):
    """Other numbers of the same distribution: equal means and deviations in each row."""
    for g, w in zip(got, want):
        assert g.shape == w.shape
        if not g.size:
            continue
        g, w = (v.astype("float64").reshape(len(v), -1) for v in (g, w))
        error = 5 * w.std(axis=1) / np.sqrt(w.shape[1] / 2) + 4e-3
        assert np.all(np.abs(g.mean(axis=1) - w.mean(axis=1)) < error)
        assert np.all(np.abs(g.std(axis=1) - w.std(axis=1)) < 0.1 * w.std(axis=1) + 4e-3)


@case(
    "ParameterizedTruncatedNormal",
    "StatelessParameterizedTruncatedNormal",
    gradient=False,
    compare=alike,
)
def bounded_normal(t):
    dtype, stateless = t.numpy("dtype"), t.op.startswith("Stateless")
    deviations = "stddevs" if stateless else "stdevs"
    rows = {
        "means": [0, 1, 0, -3],
        deviations: [1, 2, 1, 0.5],
        "minvals": [-2, -1, 4, -np.inf],
        "maxvals": [2, 0.5, 9, -4],
    }
    rows = {name: np.array(v, dtype) for name, v in rows.items()}
    one = {name: v[0] for name, v in rows.items()}
    for dims, parameters in (((4, 3000), rows), ((1, 3000), one), ((0, 2), one)):
        if not stateless:
            yield dict(shape=shape_of(dims), **parameters, **fresh_seeds(t))
            continue
        # The samples' shape ends with the parameters'.
        if dims[0] == 4:
            parameters = {k: np.repeat(v, dims[1]).reshape(dims) for k, v in rows.items()}
        yield dict(shape=shape_of(dims), seed=SEED, **parameters)
