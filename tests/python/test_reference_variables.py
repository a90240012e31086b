"""Reference variables of TensorFlow 1, in graphs that sessions run: training, checkpoints, errors.
The sweep has a case for each op.
"""

import numpy as np
import pytest
import tensorflow as tf
from support import CPU, DEVICE, WGPU

v1 = tf.compat.v1


def session(graph, placement=False):
    return v1.Session(graph=graph, config=v1.ConfigProto(allow_soft_placement=placement))


@pytest.mark.parametrize(
    ("make", "sparse"),
    [
        (lambda: v1.train.AdamOptimizer(0.05), True),
        (lambda: v1.train.AdagradOptimizer(0.1), True),
        (lambda: v1.train.FtrlOptimizer(0.1), True),
        # TensorFlow's GPUs lack their sparse updates too.
        (lambda: v1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True), False),
        (lambda: v1.train.RMSPropOptimizer(0.05, centered=True), False),
    ],
    ids=["Adam", "Adagrad", "Ftrl", "Momentum", "RMSProp"],
)
def test_a_graph_of_tensorflow_1_trains_as_on_the_cpu(rng, make, sparse):
    """An embedding and a product, all on the device."""
    table = rng.normal(size=(7, 4)).astype("float32")
    weight = rng.normal(size=(4, 3)).astype("float32")
    ids = np.array([[1, 5, 1], [6, 0, 5]], "int64")

    def train(device):
        with tf.Graph().as_default() as graph, tf.device(device):
            rows = v1.get_variable("rows", initializer=table, use_resource=False)
            w = v1.get_variable("w", initializer=weight, use_resource=False)
            read = tf.nn.embedding_lookup(rows, ids) if sparse else tf.one_hot(ids, 7) @ rows
            loss = tf.reduce_mean(tf.square(tf.tanh(read) @ w))
            step = make().minimize(loss)
            start = v1.global_variables_initializer()
        with session(graph) as running:
            running.run(start)
            losses = [running.run([loss, step])[0] for _ in range(5)]
            return losses, *running.run([rows, w])

    for got, want in zip(train(WGPU), train(CPU)):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_a_checkpoint_is_restored(tmp_path):
    def make():
        with tf.Graph().as_default() as graph, tf.device(WGPU):
            a = v1.get_variable(
                "a", initializer=np.arange(6.0, dtype="float32"), use_resource=False
            )
            b = v1.get_variable("b", initializer=np.int64(3), use_resource=False)
            start = v1.global_variables_initializer()
            doubled = v1.assign_add(a, a + 0.0)
        with graph.as_default():
            return graph, v1.train.Saver([a, b]), (a, b), start, doubled

    graph, saver, _, start, doubled = make()
    # Files are read and written on the CPU.
    with session(graph, placement=True) as running:
        running.run(start)
        running.run(doubled)
        path = saver.save(running, str(tmp_path / "model"))
    graph, saver, variables, *_ = make()
    with session(graph, placement=True) as running:
        saver.restore(running, path)
        a, b = running.run(variables)
    assert (a.tolist(), b) == ([0, 2, 4, 6, 8, 10], 3)


def test_an_assignment_of_another_shape_is_an_error_and_nothing_is_lost():
    with tf.Graph().as_default() as graph, tf.device(WGPU):
        ref = tf.raw_ops.VariableV2(shape=[2, 3], dtype=tf.float32)
        fits = tf.raw_ops.Assign(ref=ref, value=np.ones((2, 3), "float32"))
        value = v1.placeholder(tf.float32)
        other = tf.raw_ops.Assign(ref=ref, value=value)
        read = tf.identity(ref)
    with session(graph) as running:
        # Also without a value: the variable has its shape from the start.
        for _ in range(2):
            with pytest.raises(
                tf.errors.InvalidArgumentError, match=r"lhs shape= \[2,3\] rhs shape="
            ):
                running.run(other, {value: np.zeros((3, 2))})
            running.run(fits.op)
        assert running.run(read).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_value_that_somebody_holds_is_not_overwritten_by_an_assigned_tensor():
    """Assigning copies: the source stays as it is when the variable changes."""
    with tf.Graph().as_default() as graph, tf.device(WGPU):
        first, second = (tf.raw_ops.VariableV2(shape=[3], dtype=tf.float32) for _ in range(2))
        start = tf.raw_ops.Assign(ref=first, value=[1.0, 2.0, 3.0])
        copied = tf.raw_ops.Assign(ref=second, value=tf.identity(first))
        added = tf.raw_ops.AssignAdd(ref=second, value=[10.0, 10.0, 10.0])
    with session(graph) as running:
        running.run(start.op)
        running.run(copied.op)
        running.run(added.op)
        values = running.run([first, second])
    assert [v.tolist() for v in values] == [[1, 2, 3], [11, 12, 13]]


def test_a_variable_is_assigned_its_own_value():
    with tf.Graph().as_default() as graph, tf.device(WGPU):
        ref = tf.raw_ops.VariableV2(shape=[3], dtype=tf.float32)
        start = tf.raw_ops.Assign(ref=ref, value=[1.0, 2.0, 3.0])
        again = tf.raw_ops.Assign(ref=ref, value=tf.identity(ref))
    with session(graph) as running:
        running.run(start.op)
        assert running.run(again).tolist() == [1, 2, 3]


def test_no_change_is_lost_among_many_at_once():
    with tf.Graph().as_default() as graph, tf.device(WGPU):
        ref = tf.raw_ops.VariableV2(shape=[64], dtype=tf.int64)
        start = tf.raw_ops.Assign(ref=ref, value=np.zeros(64, "int64"))
        adds = [
            tf.raw_ops.AssignAdd(ref=ref, value=np.full(64, k, "int64"), use_locking=True).op
            for k in range(100)
        ]
    with session(graph) as running:
        running.run(start.op)
        running.run(adds)
        assert running.run(ref).tolist() == [4950] * 64


def test_the_optimizer_leaves_such_graphs_alone():
    """The value of a variable depends on when it is read, and fusing would change that."""
    with tf.Graph().as_default() as graph, tf.device(WGPU):
        variable = v1.get_variable("v", initializer=np.ones(8, "float32"), use_resource=False)
        result = tf.exp(-tf.abs(tf.tanh(variable) * 2.0 + 1.0))
        start = v1.global_variables_initializer()
    about = v1.RunMetadata()
    with session(graph) as running:
        running.run(start)
        options = v1.RunOptions(output_partition_graphs=True)
        got = running.run(result, options=options, run_metadata=about)
    np.testing.assert_allclose(got, np.exp(-np.abs(np.tanh(np.ones(8)) * 2 + 1)), rtol=1e-5)
    nodes = [node for part in about.partition_graphs for node in part.node]
    assert {"VariableV2", "Tanh", "Exp"} <= {n.op for n in nodes if DEVICE in n.device}
    assert not [n.op for n in nodes if n.op.startswith("_Wgpu")]
