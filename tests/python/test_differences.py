"""The intended differences that docs/WRONG.md lists: the CPU raises, the device continues."""

import numpy as np
import pytest
import tensorflow as tf
from support import DEVICE

VALUES = np.array([1.0, 2.0, 3.0], "float32")
BEYOND = np.array([0, 5])
#: A program, and its result on the device, for which the CPU raises.
CASES = {
    "gather": (lambda: tf.gather(VALUES, BEYOND), [1, 0]),
    "gather_nd": (lambda: tf.gather_nd(VALUES, BEYOND[:, None]), [1, 0]),
    "embedding": (lambda: tf.nn.embedding_lookup(VALUES[:, None], BEYOND), [[1], [0]]),
    "scatter_nd": (lambda: tf.scatter_nd(BEYOND[:, None], VALUES[:2], [3]), [1, 0, 0]),
    "update": (
        lambda: tf.tensor_scatter_nd_update(VALUES, BEYOND[:, None], VALUES[1:]),
        [2, 2, 3],
    ),
    "segments": (lambda: tf.math.unsorted_segment_sum(VALUES[:2], BEYOND, 2), [1, 0]),
    "labels": (
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(BEYOND, np.zeros([2, 3], "float32")),
        [np.log(3), np.nan],
    ),
    "quotient": (lambda: tf.constant([7, 7], tf.int64) // tf.constant([2, 0], tf.int64), [3, -1]),
    "remainder": (lambda: tf.constant([7, 7], tf.int64) % tf.constant([2, 0], tf.int64), [1, 7]),
}


@pytest.mark.parametrize("is_graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("case", CASES)
def test_what_the_cpu_refuses(case, is_graph):
    program, expected = CASES[case]
    program = tf.function(program) if is_graph else program
    with tf.device("CPU:0"), pytest.raises(tf.errors.InvalidArgumentError):
        program()
    with tf.device(DEVICE):
        np.testing.assert_allclose(program(), expected, rtol=1e-6)


def test_casts_of_numbers_that_do_not_fit():
    """The nearest integer, and 0 for NaN."""
    numbers = np.array([1e20, -1e20, np.nan, 3.7], "float32")
    with tf.device(DEVICE):
        assert tf.cast(numbers, tf.int64).numpy().tolist() == [2**63 - 1, -(2**63), 0, 3]


def test_random_numbers():
    """The CPU's numbers, except for classes."""

    def draw(device):
        tf.random.set_seed(1)
        with tf.device(device):
            logits = tf.zeros([1, 8])
            return [
                x.numpy()
                for x in (
                    tf.random.uniform([100], seed=2),
                    tf.random.uniform([100], maxval=10, dtype=tf.int64, seed=2),
                    tf.nn.dropout(tf.ones([100]), 0.5, seed=2),
                    tf.random.normal([100], seed=2),
                    tf.random.categorical(logits, 100, seed=2),
                )
            ]

    got, want = draw(DEVICE), draw("CPU:0")
    for ours, theirs in zip(got[:3], want[:3]):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(got[3], want[3], rtol=1e-5, atol=1e-6)
    assert (got[4] != want[4]).any()
