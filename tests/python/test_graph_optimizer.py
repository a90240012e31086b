"""The graph optimizer as a whole: schemas, configuration, and invariants."""

import importlib
import pathlib

import graphs
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool
from support import python
from tensorflow.core.framework import cost_graph_pb2, graph_pb2, resource_handle_pb2  # noqa: F401
from tensorflow.core.grappler.costs import op_performance_data_pb2  # noqa: F401

PROTO = pathlib.Path(__file__).parents[2] / "proto"


def messages(parent, file):
    """Every message of a file, nested ones too, by its full name."""
    for message in file:
        name = f"{parent}.{message.name}"
        yield name, message
        yield from messages(name, message.nested_type)


def schemas():
    """Our schemas."""
    return descriptor_pb2.FileDescriptorSet.FromString(
        (PROTO / "descriptors.bin").read_bytes()
    ).file


def test_the_schemas_are_tensorflows():
    """Names, numbers, types, labels and packing of every field that we know are those of the
    running TensorFlow.
    """
    # TensorFlow imports the profiler's messages when a session needs them.
    importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    count = 0
    for file in schemas():
        for name, message in messages(file.package, file.message_type):
            theirs = descriptor_pb2.DescriptorProto()
            descriptor_pool.Default().FindMessageTypeByName(name).CopyToProto(theirs)
            fields = {field.name: field for field in theirs.field}
            for field in message.field:
                twin = fields[field.name]
                for what in ("number", "type", "type_name", "label"):
                    assert getattr(field, what) == getattr(twin, what), (
                        f"{what} of {name}.{field.name}"
                    )
                assert field.HasField("oneof_index") == twin.HasField("oneof_index"), (
                    f"{name}.{field.name}"
                )
                count += 1
    assert count > 150


def test_the_types_are_tensorflows():
    (ours,) = [enum for file in schemas() for enum in file.enum_type]
    theirs = descriptor_pool.Default().FindEnumTypeByName(f"tensorflow.{ours.name}").values_by_name
    # An older TensorFlow knows fewer.
    known = {value.name: value.number for value in ours.value}
    assert {name: value.number for name, value in theirs.items()}.items() <= known.items()


def chain(x):
    """A program with an op that every optimizer may rewrite."""
    return tf.nn.relu(tf.identity(tf.exp(-x)) * 2.0 + 1.0)


def fused(nodes):
    """The fused nodes."""
    return [node for node in nodes if node.op.startswith("_Wgpu")]


def test_the_optimizer_runs_and_can_be_switched_off():
    x = tf.random.normal((3, 5))
    try:
        want, plain = None, None
        for on in (True, False):
            tf.config.optimizer.set_experimental_options({"use_plugin_optimizers": on})
            got, nodes = graphs.optimized(tf.function(chain), x)
            assert bool(fused(nodes)) == on
            want, plain = (got, nodes) if want is None else (want, plain)
            np.testing.assert_allclose(got, want, rtol=1e-6)
    finally:
        tf.config.optimizer.set_experimental_options({"use_plugin_optimizers": True})


PROGRAM = """
    import sys
    sys.path.insert(0, {tests!r})
    import graphs
    import tensorflow as tf

    @tf.function
    def f(x):
        return tf.nn.relu(tf.exp(-x) * 2.0 + 1.0)

    result, nodes = graphs.optimized(f, tf.ones((2, 3)))
    print("ops", *sorted(n.op for n in nodes if n.op.startswith("_Wgpu")))
    print("value", result.numpy()[0, 0])
"""


def run(setting):
    """Output and messages of a process with this TF_WGPU_OPTIMIZER."""
    code = PROGRAM.format(tests=str(pathlib.Path(__file__).parent))
    done = python(code, TF_WGPU_OPTIMIZER=setting)
    assert done.returncode == 0, done.stderr
    lines = dict(
        line.partition(" ")[::2]
        for line in done.stdout.splitlines()
        if line.startswith(("ops", "value"))
    )
    assert float(lines["value"]) == pytest.approx(1.7357588)
    return lines["ops"], done.stderr


def test_the_variable_chooses_passes():
    assert run("off")[0] == ""
    assert run("cleanup")[0] == ""
    assert run("elementwise")[0] == "_WgpuFusedElementwise"


def test_an_unknown_pass_is_told_and_the_rest_counts():
    ops, log = run("elementwise,nonsense")
    assert ops == "_WgpuFusedElementwise"
    assert log.count('names "nonsense"') == 1


MOMENTS = """
    import tensorflow as tf

    @tf.function
    def f(x):
        mean, variance = tf.nn.moments(x, [0], keepdims=True)
        return tf.exp((x - mean) * tf.math.rsqrt(variance + 0.1))

    f(tf.ones((4, 3)))
"""


def test_the_second_run_knows_the_shapes_of_what_the_first_one_made(tmp_path):
    done = python(MOMENTS, TF_WGPU_DUMP=tmp_path)
    assert done.returncode == 0, done.stderr
    (second,) = tmp_path.glob("*/graphs/0001_before.txt")
    [_, reduce] = second.read_text(encoding="utf-8").split("= _WgpuFusedReduce(")
    assert "\n} -> float32[1, 3], float32[1, 3]\n" in reduce
    # TensorFlow reports a shape that it infers differently.
    assert "annotated output shape" not in done.stderr


def test_other_devices_are_left_alone():
    @tf.function
    def f(x):
        with tf.device("/device:CPU:0"):
            y = tf.maximum(x * 3.0 + 1.0, x)
        return tf.exp(-y) * 2.0

    x = tf.ones((2, 2))
    got, nodes = graphs.optimized(f, x)
    cpu = graphs.ops(nodes, "CPU")
    assert cpu["Maximum"] == cpu["AddV2"] == 1
    assert not any(op.startswith("_Wgpu") for op in cpu)
    np.testing.assert_allclose(got, np.full((2, 2), 2 * np.exp(-4)), rtol=1e-6)


def test_loops_conditions_and_nested_functions():
    @tf.function
    def inner(x):
        return tf.exp(-x) * 2.0 + 1.0

    @tf.function
    def f(x):
        total = tf.zeros_like(x)
        i = tf.constant(0)
        while i < 3:
            total = inner(total) + x
            i += 1
        return tf.cond(tf.reduce_sum(total) > 0, lambda: inner(total), lambda: -total)

    x = tf.constant([[0.5, -1.0]])
    want = np.zeros((1, 2), np.float32)
    for _ in range(3):
        want = np.exp(-want) * 2 + 1 + x.numpy()
    np.testing.assert_allclose(f(x), np.exp(-want) * 2 + 1, rtol=1e-5)


def test_control_edges_keep_the_order_of_writes():
    v = tf.Variable(1.0)

    @tf.function
    def f():
        a = v * 2.0 + 1.0
        v.assign(a)
        b = v * 2.0 + 1.0
        v.assign_add(b)
        return a, b, v * 2.0 + 1.0

    assert [float(x) for x in f()] == [3.0, 7.0, 21.0]
    assert float(v) == 10.0


def test_feeds_and_fetches_of_a_session_stay():
    with tf.Graph().as_default(), tf.device("/device:WGPU:0"):
        x = tf.compat.v1.placeholder(tf.float32, (None, 2), name="x")
        a = tf.exp(-x, name="a")
        b = tf.nn.relu(a * 2.0 + 1.0, name="b")
        c = tf.sqrt(b * 3.0, name="c")
        with tf.compat.v1.Session() as session:
            ones = np.ones((1, 2), np.float32)
            want = np.exp(-ones)
            for fetch, value in [(a, want), (b, want * 2 + 1), (c, np.sqrt((want * 2 + 1) * 3))]:
                np.testing.assert_allclose(session.run(fetch, {x: ones}), value, rtol=1e-6)
            # A value in the midst of a fused chain may be fed.
            np.testing.assert_allclose(session.run(c, {a: ones}), np.full((1, 2), 3.0), rtol=1e-6)
            got = session.run([a, b, c], {x: ones})
            np.testing.assert_allclose(got[1], want * 2 + 1, rtol=1e-6)


def test_signatures_of_functions_stay():
    module = tf.Module()
    module.f = tf.function(
        chain, input_signature=[tf.TensorSpec((None, 3), tf.float32, name="input")]
    )
    concrete = module.f.get_concrete_function()
    concrete(tf.ones((2, 3)))
    assert concrete.structured_input_signature[0][0].name == "input"
    assert [
        node.op for node in concrete.graph.as_graph_def().node if node.op.startswith("_Wgpu")
    ] == []


TRAINING = """
    import tensorflow as tf

    with tf.device("WGPU:0"):
        w = tf.Variable(tf.ones([8, 4]))

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                y = tf.nn.relu(tf.matmul(x, w)) * 0.5
                loss = tf.reduce_mean(tf.square(y - tf.reduce_mean(y, axis=0)))
            w.assign_sub(0.1 * tape.gradient(loss, w))
            return loss

        step(tf.ones([16, 8])).numpy()
"""


def test_the_second_run_infers_nothing_anew():
    """TensorFlow changes nothing between its two runs that would change shapes, and the optimizer
    sees that.
    """
    done = python(TRAINING, TF_WGPU_LOG="debug")
    assert done.returncode == 0, done.stderr
    known = "types and shapes are known from "
    sources = [
        line.partition(known)[2].partition(",")[0]
        for line in done.stderr.splitlines()
        if known in line
    ]
    assert sources[-2:] == ["TensorFlow", "the run before"], sources
