"""Recurrent layers of Keras and tf_keras run as one op, with the results of the loop."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_wgpu
from graphs import ops, optimized
from support import CPU, WGPU, assert_close, python
from tensorflow_wgpu import _recurrent, _recurrent_ops

layers = keras.layers
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 7, 5)).astype("float32")
MASKS = {
    "none": None,
    "right": np.array([[1, 1, 1, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0], [1] * 7], bool),
    "scattered": np.array([[0, 1, 0, 1, 0, 0, 1], [1, 0, 0, 1, 1, 1, 0], [0] * 6 + [1]], bool),
    "all of one": np.array([[1] * 7, [0] * 7, [0, 0, 1, 1, 1, 0, 0]], bool),
}


def ops_of(layer, x=X, mask=None):
    """The types of the operations of a layer as a function."""
    with tf.device(WGPU):
        fn = tf.function(lambda x: layer(x, mask=mask))
        graph = fn.get_concrete_function(tf.constant(x)).graph
    return {op.type for op in graph.get_operations()}


def is_fused(layer, **options):
    types = ops_of(layer, **options)
    fused = "_WgpuRecurrentLayer" in types
    assert fused != bool({"While", "StatelessWhile"} & types), types
    return fused


def run(device, make, weights, x, mask, initial, graph, training=False):
    """Outputs and gradients of a layer with these weights."""
    with tf.device(device):
        layer = make()
        layer(tf.constant(x))
        layer.set_weights(weights)
        x = tf.constant(x)
        mask = None if mask is None else tf.constant(mask)
        states = None if initial is None else [tf.constant(s) for s in initial]

        def step(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                found = tf.nest.flatten(
                    layer(x, mask=mask, initial_state=states, training=training)
                )
                wide = tf.float64 if x.dtype == tf.float64 else tf.float32
                loss = tf.zeros([], wide)
                for y in found:
                    ramp = np.cos(np.arange(np.prod(y.shape))).reshape(y.shape)
                    loss += tf.reduce_sum(tf.cast(y, wide) * tf.constant(ramp, wide))
            variables = [v.value if hasattr(v, "value") else v for v in layer.trainable_variables]
            return [*found, *tape.gradient(loss, [x, *variables])]

        found = (tf.function(step) if graph else step)(x)
        return [tf.convert_to_tensor(y).numpy() for y in found]


def check(make, x=X, mask=None, initial=None, rtol=None, atol=2e-5):
    """Both devices, eager and as a function."""
    with tf.device(CPU):
        first = make()
        first(tf.constant(x))
        weights = [RNG.uniform(-0.6, 0.6, w.shape).astype(w.dtype) for w in first.get_weights()]
    want = run(CPU, make, weights, x, mask, initial, graph=True)
    for graph in (False, True):
        got = run(WGPU, make, weights, x, mask, initial, graph)
        assert [g.shape for g in got] == [w.shape for w in want]
        for g, w in zip(got, want):
            # Sums of 16 bits are rounded by their largest parts, also where these cancel.
            largest = float(np.max(np.abs(w), initial=0)) if w.dtype.itemsize == 2 else 1.0
            assert_close(g, w, rtol, atol * max(1.0, largest))


KINDS = {
    "LSTM": layers.LSTM,
    "GRU": layers.GRU,
    "GRU reset before": functools.partial(layers.GRU, reset_after=False),
    "SimpleRNN": layers.SimpleRNN,
}
OPTIONS = {
    "last": {},
    "all": {"return_sequences": True, "return_state": True},
    "backwards": {"go_backwards": True, "return_sequences": True},
    "no bias": {"use_bias": False},
    "zeros": {"zero_output_for_mask": True, "return_sequences": True},
}


@pytest.mark.sampled(7)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_fused_with_the_numbers_of_the_loop(kind, options, mask):
    def make():
        return KINDS[kind](6, **OPTIONS[options])

    assert is_fused(make(), mask=MASKS[mask])
    check(make, mask=MASKS[mask])


@pytest.mark.parametrize("mask", ["none", "scattered"])
@pytest.mark.parametrize("activation", ["relu", "sigmoid", "linear"])
def test_layers_with_other_activations(activation, mask):
    def make():
        return layers.SimpleRNN(6, activation=activation, return_sequences=True)

    assert is_fused(make(), mask=MASKS[mask])
    check(make, mask=MASKS[mask])


def fused_ops(layer, **options):
    """The number of whole-layer ops that a layer becomes."""
    with tf.device(WGPU):
        fn = tf.function(lambda x: layer(x, **options))
        graph = fn.get_concrete_function(tf.constant(X)).graph
    types = [op.type for op in graph.get_operations()]
    assert not {"While", "StatelessWhile"} & set(types)
    return types.count("_WgpuRecurrentLayer")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("mask", ["none", "right", "scattered", "all of one"])
@pytest.mark.parametrize("options", [{"return_sequences": True}, {"return_state": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_both_directions_are_one_op(kind, options, mask):
    def make():
        return layers.Bidirectional(KINDS[kind](4, **options))

    assert fused_ops(make(), mask=MASKS[mask]) == 1
    check(make, mask=MASKS[mask])


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.Bidirectional(
            layers.GRU(4), backward_layer=layers.GRU(3, go_backwards=True)
        ),
        lambda: layers.Bidirectional(
            layers.GRU(4, reset_after=False), backward_layer=layers.GRU(4, go_backwards=True)
        ),
        lambda: layers.Bidirectional(
            layers.LSTM(4), backward_layer=layers.GRU(4, go_backwards=True), merge_mode="sum"
        ),
    ],
)
def test_directions_that_differ_are_two_ops(make):
    assert fused_ops(make()) == 2
    check(make)


@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU])
def test_directions_of_which_one_has_no_bias_are_one_op(kind):
    def make():
        return layers.Bidirectional(
            kind(4), backward_layer=kind(4, go_backwards=True, use_bias=False)
        )

    assert fused_ops(make()) == 1
    check(make)


def test_directions_with_states_are_two_ops():
    states = [RNG.normal(size=(3, 4)).astype("float32") for _ in range(4)]

    def make():
        return layers.Bidirectional(layers.LSTM(4, return_sequences=True))

    assert fused_ops(make(), initial_state=[tf.constant(s) for s in states]) == 2
    check(make, initial=states)


def test_a_mask_that_leaves_outputs_in_between_keeps_directions_apart():
    def make():
        layer = layers.Bidirectional(layers.GRU(4, return_sequences=True))
        for part in (layer.forward_layer, layer.backward_layer):
            part.zero_output_for_mask = False
        return layer

    assert fused_ops(make(), mask=MASKS["scattered"]) == 2
    check(make, mask=MASKS["scattered"])


@pytest.mark.parametrize("kind", KINDS)
def test_initial_states(kind):
    states = [RNG.normal(size=(3, 6)).astype("float32") for _ in range(2 if kind == "LSTM" else 1)]
    check(lambda: KINDS[kind](6, return_state=True), initial=states)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "mixed_float16"])
def test_types(kind, dtype):
    def make():
        # Orthogonal initialization uses QR, which WGPU lacks for 16-bit types.
        return KINDS[kind](6, return_sequences=True, dtype=dtype, recurrent_initializer="uniform")

    x = X.astype("float64" if dtype == "float64" else "float32")
    assert is_fused(make(), x=x)
    tolerance = {"float64": 1e-10, "bfloat16": 8e-2}.get(dtype, 1e-2)
    for mask in (None, MASKS["scattered"]):
        check(make, x=x, mask=mask, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.LSTM(4, activation="relu"),
        lambda: layers.LSTM(4, recurrent_activation="hard_sigmoid"),
        lambda: layers.LSTM(4, recurrent_dropout=0.2),
        lambda: layers.LSTM(4, use_cudnn=False),
        lambda: layers.GRU(4, reset_after=False, activation="relu"),
        lambda: layers.SimpleRNN(4, activation="elu"),
        lambda: layers.SimpleRNN(4, recurrent_dropout=0.2),
        lambda: layers.RNN(layers.LSTMCell(4)),
    ],
)
def test_what_the_op_cannot_express_stays_a_loop(make):
    assert not is_fused(make())
    check(make)


def test_unrolled_layers_stay_unrolled():
    assert "_WgpuRecurrentLayer" not in ops_of(layers.LSTM(4, unroll=True))
    check(lambda: layers.LSTM(4, unroll=True))


def test_a_layer_on_the_cpu_stays_a_loop():
    with tf.device(CPU):
        fn = tf.function(layers.LSTM(4)).get_concrete_function(tf.constant(X))
    assert "_WgpuRecurrentLayer" not in {op.type for op in fn.graph.get_operations()}


def test_use_cudnn_may_be_required():
    assert is_fused(layers.GRU(4, use_cudnn=True))


@pytest.mark.parametrize("kind", KINDS)
def test_input_dropout_is_the_loops(kind):
    """One mask for all steps; the same seeds draw the same numbers on both devices."""

    def outputs(device, training):
        with tf.device(device):
            keras.utils.set_random_seed(5)
            layer = KINDS[kind](4, dropout=0.5, return_sequences=True)
            return layer(tf.constant(X), training=training).numpy()

    dropped = outputs(WGPU, training=True)
    assert_close(dropped, outputs(CPU, training=True), None, 2e-5)
    assert not np.allclose(dropped, outputs(WGPU, training=False), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_stateful_layers_keep_their_state(kind):
    def outputs(device):
        with tf.device(device):
            keras.utils.set_random_seed(1)
            model = keras.Sequential(
                [keras.Input(batch_shape=(3, 7, 5)), KINDS[kind](4, stateful=True)]
            )
            return [model(tf.constant(X)).numpy() for _ in range(3)]

    for g, w in zip(outputs(WGPU), outputs(CPU)):
        assert_close(g, w, None, 2e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_trains_as_on_the_cpu(kind):
    def losses(scope):
        with scope:
            keras.utils.set_random_seed(2)
            model = keras.Sequential(
                [
                    keras.Input((None,), dtype="int32"),
                    layers.Embedding(20, 8, mask_zero=True),
                    layers.Bidirectional(KINDS[kind](8, return_sequences=True)),
                    KINDS[kind](8),
                    layers.Dense(3),
                ]
            )
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile("adam", loss)
            rng = np.random.default_rng(3)
            x, y = rng.integers(0, 20, (32, 9)), rng.integers(0, 3, 32)
            fit = model.fit(x, y, batch_size=10, epochs=3, verbose=0, shuffle=False)
            return np.array(fit.history["loss"])

    # WGPU is chosen if the program names no device.
    assert_close(losses(contextlib.nullcontext()), losses(tf.device(CPU)), 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("kind", "most"), [("LSTM", 55), ("GRU", 60), ("GRU reset before", 55), ("SimpleRNN", 50)]
)
def test_a_training_step_is_a_few_dispatches_and_no_read_back(kind, most):
    """2,349 dispatches with a loop of an LSTM."""
    layer = KINDS[kind]

    def count():
        return tensorflow_wgpu.statistics()["WGPU:0"]

    with tf.device(WGPU):
        x = keras.Input((64, 16))
        y = layers.Dense(4)(layer(16)(layer(16, return_sequences=True)(x)))
        model = keras.Model(x, y)
        model.compile("adam", "mse")
        data = [tf.zeros((4, 64, 16)), tf.zeros((4, 4))]
        for _ in range(2):
            model.train_on_batch(*data)
        before = count()
        model.train_on_batch(*data)
        after = count()
    assert after["dispatches"] - before["dispatches"] <= most
    # The loss.
    assert after["downloads"] - before["downloads"] <= 1


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("mask", ["none", "right"])
def test_gradients_of_gradients(kind, both, mask):
    def penalty(device):
        with tf.device(device):
            keras.utils.set_random_seed(4)
            layer = KINDS[kind](5)
            layer = layers.Bidirectional(layer) if both else layer
            x = tf.constant(X)
            layer(x)
            variables = [v.value for v in layer.trainable_variables]
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    mean = tf.reduce_mean(layer(x, mask=MASKS[mask]) ** 2)
                slope = tf.reduce_sum(inner.gradient(mean, x) ** 2)
            return [g.numpy() for g in outer.gradient(slope, [x, *variables])]

    for g, w in zip(penalty(WGPU), penalty(CPU)):
        assert_close(g, w, 1e-4, 1e-6)


@pytest.mark.parametrize(("mode", "gates"), [("lstm", 4), ("gru", 3), ("rnn_tanh", 1)])
@pytest.mark.parametrize("time_major", [False, True])
def test_gradients_of_gradients_of_programs_that_call_cudnn_rnn(mode, gates, time_major):
    shapes = [(3, 7, 5), (3, 2, 4), (3, 2, 4), (2 * gates * 4 * (5 + 4 + 2),)]
    values = [RNG.uniform(-0.6, 0.6, shape).astype("float32") for shape in shapes]
    if mode != "lstm":
        values[2] = np.float32(0.0)

    def ordered(x):
        return tf.transpose(x, [1, 0, 2])

    def outputs(x, h, c, params):
        if "WGPU" in x.device:
            first, *states = (ordered(t) if time_major and t.shape.rank else t for t in (x, h, c))
            found = tf.raw_ops.CudnnRNNV3(
                input=first,
                input_h=states[0],
                input_c=states[1],
                params=params,
                sequence_lengths=[7, 4, 1],
                rnn_mode=mode,
                direction="bidirectional",
                time_major=time_major,
            )[0]
            return ordered(found) if time_major else found
        weights = _recurrent_ops.cudnn_weights(mode, params, 2, 5, 4)
        lengths, both = tf.constant([7, 4, 1]), []
        for i, own in enumerate(weights):
            states = [h[:, i], c[:, i]] if mode == "lstm" else [h[:, i]]
            seen = tf.reverse_sequence(x, lengths, 1) if i else x
            y = ordered(_recurrent_ops.loop(mode, ordered(seen), states, own, lengths)[0])
            both.append(tf.reverse_sequence(y, lengths, 1) if i else y)
        return tf.concat(both, 2)

    def penalty(device):
        with tf.device(device):
            tensors = [tf.constant(value) for value in values]
            kept = tensors if mode == "lstm" else [*tensors[:2], tensors[3]]
            with tf.GradientTape() as outer:
                outer.watch(kept)
                with tf.GradientTape() as inner:
                    inner.watch(kept)
                    mean = tf.reduce_mean(outputs(*tensors) ** 2)
                slopes = inner.gradient(mean, kept)
                slope = tf.add_n([tf.reduce_sum(s**2) for s in slopes])
            return [g.numpy() for g in outer.gradient(slope, kept)]

    for g, w in zip(penalty(WGPU), penalty(CPU)):
        assert_close(g, w, 1e-4, 1e-6)


def loops_in(path):
    """Whether a saved model has loops, and no op that only WGPU has."""
    text = (path / "saved_model.pb").read_bytes()
    assert b"CudnnRNN" not in text
    assert b"_Wgpu" not in text
    return b"While" in text


def test_exported_models_keep_their_loops(tmp_path):
    with tf.device(WGPU):
        x = keras.Input((7, 5))
        y = layers.GRU(4, reset_after=False)(layers.LSTM(4, return_sequences=True)(x))
        model = keras.Model(x, y)
        want = model(X).numpy()
    model.export(tmp_path / "model", verbose=False)
    assert loops_in(tmp_path / "model")
    archive = keras.export.ExportArchive()
    archive.track(model)
    signature = [tf.TensorSpec((None, 7, 5))]
    archive.add_endpoint("serve", lambda x: model(x), input_signature=signature)
    archive.write_out(str(tmp_path / "archive"), verbose=False)
    assert loops_in(tmp_path / "archive")
    with tf.device(CPU):
        loaded = tf.saved_model.load(str(tmp_path / "model"))
        found = loaded.serve(tf.constant(X))
    assert_close(found.numpy(), want, None, 2e-5)
    assert is_fused(layers.LSTM(4)), "afterwards"


LEGACY = """
import functools, numpy as np, tensorflow as tf, tf_keras
from tf_keras import layers
from tf_keras.src.layers.rnn import gru_v1
x = np.random.default_rng(0).normal(size=(3, 7, 5)).astype("float32")
mask = np.array([[1, 1, 1, 1, 0, 0, 0], [0, 1, 0, 1, 1, 0, 1], [1] * 7], bool)
makers = [
    lambda kind: kind(6),
    lambda kind: kind(6, return_sequences=True, return_state=True),
    lambda kind: kind(6, go_backwards=True, return_sequences=True),
    lambda kind: kind(6, time_major=True, return_sequences=True),
    lambda kind: layers.Bidirectional(kind(4, return_sequences=True)),
]
def run(device, make, weights, mask, graph):
    with tf.device(device):
        layer = make()
        t = tf.constant(x if not getattr(layer, "time_major", False) else x.transpose(1, 0, 2))
        if mask is not None and getattr(layer, "time_major", False):
            mask = mask.T
        layer(t)
        layer.set_weights(weights)
        def step(t):
            with tf.GradientTape() as tape:
                tape.watch(t)
                ys = tf.nest.flatten(layer(t, mask=None if mask is None else tf.constant(mask)))
                loss = tf.add_n([tf.reduce_sum(y * y) for y in ys])
            return [*ys, *tape.gradient(loss, [t, *layer.trainable_variables])]
        fn = tf.function(step) if graph else step
        found = [y.numpy() for y in fn(t)]
        if graph and device == "WGPU:0":
            graph = fn.get_concrete_function(t).graph
            assert "_WgpuRecurrentLayer" in {op.type for op in graph.get_operations()}
        return found
tf.config.set_soft_device_placement(False)
kinds = [
    layers.LSTM,
    layers.GRU,
    functools.partial(layers.GRU, reset_after=False),
    functools.partial(layers.GRU, reset_after=False, use_bias=False),
    functools.partial(layers.LSTM, use_bias=False),
    layers.SimpleRNN,
    functools.partial(layers.SimpleRNN, activation="relu"),
    functools.partial(gru_v1.GRU, recurrent_activation="sigmoid"),
]
for i, kind in enumerate(kinds):
    for make in makers if i < 3 else makers[2:4]:
        made = lambda: make(kind)
        with tf.device("CPU:0"):
            first = made()
            first(tf.constant(x))
            weights = first.get_weights()
        for m in (None, mask):
            want = run("CPU:0", made, weights, m, True)
            for graph in (False, True):
                for g, w in zip(run("WGPU:0", made, weights, m, graph), want):
                    np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-5)
def drawn(device, kind, training):
    with tf.device(device):
        tf_keras.utils.set_random_seed(5)
        layer = kind(4, dropout=0.5, stateful=True, return_sequences=True)
        return [layer(tf.constant(x), training=training).numpy() for _ in range(2)]
for kind in kinds[2], layers.SimpleRNN:
    for training in (False, True):
        got, want = drawn("WGPU:0", kind, training), drawn("CPU:0", kind, training)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        assert not np.allclose(got[0], got[1], atol=1e-3)
for layer in (
    layers.GRU(4, reset_after=False, recurrent_dropout=0.5),
    layers.RNN(layers.GRUCell(4, reset_after=False)),
    layers.SimpleRNN(4, unroll=True),
):
    graph = tf.function(layer).get_concrete_function(tf.constant(x)).graph
    assert "_WgpuRecurrentLayer" not in {op.type for op in graph.get_operations()}
ragged = tf.ragged.constant([[[1.0, 2.0]] * 3, [[3.0, 4.0]] * 2], ragged_rank=1)
layer = kinds[2](4)
with tf.device("CPU:0"):
    want = layer(ragged).numpy()
np.testing.assert_allclose(layer(ragged).numpy(), want, rtol=2e-5, atol=2e-5)
model = tf_keras.Sequential(
    [tf_keras.Input((7, 5)), kinds[2](4, return_sequences=True), layers.LSTM(4)]
)
import tempfile, pathlib
path = pathlib.Path(tempfile.mkdtemp())
model.save(path / "m", save_format="tf")
with tf.device("CPU:0"):
    # With an implementation for each kind of device, of which TensorFlow takes the CPU's.
    found = tf.saved_model.load(str(path / "m"))(x)
np.testing.assert_allclose(found, model(x), rtol=2e-5, atol=2e-5)
print("well")
"""


@pytest.mark.nightly
def test_tf_keras():
    done = python(LEGACY)
    assert done.stdout.strip().endswith("well"), done.stderr[-3000:]


def test_a_variable_leaves_loops_as_they_are():
    script = """
import tensorflow as tf, keras
fn = tf.function(keras.layers.LSTM(4)).get_concrete_function(tf.zeros((2, 3, 4)))
print("_WgpuRecurrentLayer" in {op.type for op in fn.graph.get_operations()})
"""
    assert python(script, TF_WGPU_RECURRENT="loop").stdout.strip().endswith("False")
    assert python(script).stdout.strip().endswith("True")


def test_the_optimizer_leaves_the_op_alone():
    layer = layers.LSTM(6)
    with tf.device(WGPU):
        layer(tf.constant(X))
        _, nodes = optimized(tf.function(lambda x: tf.nn.relu(layer(x))), tf.constant(X))
    assert ops(nodes)["_WgpuRecurrentLayer"] == 1


def test_portable_is_of_this_thread_and_nests():
    with _recurrent.portable(), _recurrent.portable():
        assert not _recurrent.is_fused(tf.float32)
    assert _recurrent.is_fused(tf.float32)


def test_types_without_a_kernel_stay_loops():
    """float64 on an adapter that lacks it, integers."""
    assert _recurrent.is_fused(tf.float64)
    assert not _recurrent.is_fused(tf.int32)
    script = """
import tensorflow as tf, keras
from tensorflow_wgpu import _recurrent, _recurrent_ops
print(_recurrent.is_fused(tf.float64), _recurrent.is_fused(tf.bfloat16))
layer = keras.layers.GRU(3, dtype="float64")
print(layer(tf.ones((2, 3, 4), tf.float64)).shape)
"""
    done = python(script, TF_WGPU_PROFILE="apple")
    assert done.stdout.split("\n")[:2] == ["False True", "(2, 3)"], done.stderr
