"""The ops of recurrent layers on WGPU: one op for a layer, with its gradient and the gradient's
gradient.

The op is CudnnRNNV3, or `_WgpuRecurrentLayer` for the kinds of layers that CudnnRNN has no name
for. The plug-in defines the latter and has kernels for both.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any

from tensorflow_wgpu import _own_ops

#: The number of gates of a unit of each kind of layer.
GATES = {
    "gru": 3,
    "gru_reset_before": 3,
    "lstm": 4,
    "rnn_linear": 1,
    "rnn_relu": 1,
    "rnn_sigmoid": 1,
    "rnn_tanh": 1,
}
#: The activations of layers with one gate, by the names that the ops have for these layers.
ACTIVATIONS = {
    "rnn_linear": "linear",
    "rnn_relu": "relu",
    "rnn_sigmoid": "sigmoid",
    "rnn_tanh": "tanh",
}
#: The kinds of layers that CudnnRNN has no name for.
OURS = ("gru_reset_before", "rnn_linear", "rnn_sigmoid")

_DIRECTIONS = ("unidirectional", "bidirectional")

CUDNN = "CudnnRNNV3"
LAYER = "_WgpuRecurrentLayer"
GRADIENT = "_WgpuRecurrentLayerGrad"


def tensorflow() -> types.ModuleType:
    """TensorFlow, which the caller has imported."""
    return sys.modules["tensorflow"]


@functools.cache
def op_of(mode: str) -> str | None:
    """The op of a kind of layer; None if TensorFlow does not have it."""
    name = LAYER if mode in OURS else CUDNN
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    return name if registry.get(name) else None


def run(
    mode: str,
    x: Any,
    states: list[list[Any]],
    params: list[list[Any]],
    lengths: Any,
    time_major: bool,
) -> tuple[Any, list[list[Any]]]:
    """Runs the op, one direction for each item of `states`, which has no dimension for layers.
    Takes the parts of `params`: weights, recurrent weights, then biases. Returns outputs and
    states.
    """
    tf = tensorflow()
    is_turned = time_major and mode in OURS
    if is_turned:
        x, time_major = tf.transpose(x, [1, 0, 2]), False
    axis = 0 if time_major else 1
    state = [tf.stack(parts, axis) for parts in zip(*states)]
    flat = [part for parts in params for part in parts[:2]]
    flat += [part for parts in params for part in parts[2:]]
    direction = _DIRECTIONS[len(params) - 1]
    inputs = {
        "input": x,
        "input_h": state[0],
        "input_c": state[1] if mode == "lstm" else tf.zeros([], x.dtype),
        "params": tf.concat([tf.reshape(part, [-1]) for part in flat], 0),
        "sequence_lengths": lengths,
    }
    if mode in OURS:
        inputs["sequence_lengths"] = tf.convert_to_tensor(lengths)
        attributes = {"rnn_mode": mode.encode(), "direction": direction.encode()}
        found = _own_ops.call(LAYER, inputs, x.dtype, 4, **attributes, is_training=True)
        # Older releases' C API hides the states' shapes from the shape function.
        found[0].set_shape([None, None, sum(s[0].shape[-1] for s in states)])
    else:
        found = tf.raw_ops.CudnnRNNV3(
            **inputs,
            rnn_mode=mode,
            direction=direction,
            time_major=time_major,
            is_training=True,
        )
    outputs, h, c, *_ = found
    if is_turned:
        outputs = tf.transpose(outputs, [1, 0, 2])
    last = [tf.unstack(s, len(params), axis) for s in ([h, c] if mode == "lstm" else [h])]
    return outputs, [list(parts) for parts in zip(*last)]


def loop(mode: str, x: Any, states: list[Any], params: Any, lengths: Any) -> tuple[Any, list[Any]]:
    """The op's results for one layer in one direction, as plain operations; steps come first."""
    tf = tensorflow()
    steps, units, gates = tf.shape(x)[0], states[0].shape[-1], GATES[mode]
    sizes = [gates * units * n for n in (x.shape[-1], units, 1, 1)]
    weights, recurrent, bias, recurrent_bias = tf.split(params, sizes)
    weights = tf.reshape(weights, [gates * units, -1])
    recurrent = tf.reshape(recurrent, [gates * units, units])
    from_inputs = tf.einsum("sbi,gi->sbg", x, weights) + bias

    def step(before: tuple[Any, ...], now: tuple[Any, Any]) -> tuple[Any, ...]:
        _, h, *cells = before
        from_input = tf.split(now[0], gates, axis=-1)

        def of(outputs: Any) -> list[Any]:
            all_gates = tf.linalg.matmul(outputs, recurrent, transpose_b=True) + recurrent_bias
            return tf.split(all_gates, gates, axis=-1)

        from_h = of(h)
        if mode == "lstm":
            i, f, g, o = (a + b for a, b in zip(from_input, from_h))
            new = [tf.sigmoid(f) * cells[0] + tf.sigmoid(i) * tf.tanh(g)]
            output = tf.sigmoid(o) * tf.tanh(new[0])
        elif mode in ACTIVATIONS:
            activation = getattr(tf.nn, ACTIVATIONS[mode], tf.identity)
            output, new = activation(from_input[0] + from_h[0]), []
        else:
            r, u = (tf.sigmoid(a + b) for a, b in zip(from_input[:2], from_h[:2]))
            from_before = r * from_h[2] if mode == "gru" else of(r * h)[2]
            output = (1 - u) * tf.tanh(from_input[2] + from_before) + u * h
            new = []
        valid = (now[1] < lengths)[:, tf.newaxis]
        last = [tf.where(valid, a, b) for a, b in zip([output, *new], [h, *cells])]
        return tf.where(valid, output, tf.zeros_like(output)), *last

    start = (tf.zeros_like(states[0]), *states)
    outputs, *all_states = tf.scan(step, (from_inputs, tf.range(steps)), start)
    return outputs, [s[-1] for s in all_states]


def _gradient(op: Any, *grads: Any) -> list[Any]:
    """The gradient of our op."""
    names = ("input", "input_h", "input_c", "params", "sequence_lengths")
    inputs = dict(zip(names, op.inputs))
    outputs = ("output", "output_h", "output_c")
    inputs |= dict(zip(outputs, op.outputs))
    inputs |= {f"{name}_backprop": grad for name, grad in zip(outputs, grads)}
    inputs["reserve_space"] = op.outputs[3]
    attributes = {name: op.get_attr(name) for name in ("rnn_mode", "direction")}
    return [*_own_ops.call(GRADIENT, inputs, op.inputs[0].dtype, 4, **attributes), None]


def _network(
    mode: str, x: Any, states: list[Any], params: Any, lengths: Any
) -> tuple[Any, list[Any]]:
    """The op's results for one layer in one or both directions, as plain operations; steps and
    directions come first.
    """
    tf = tensorflow()
    directions, units, gates = states[0].shape[0], states[0].shape[-1], GATES[mode]
    sizes = [gates * units * n for n in (x.shape[-1] + units, 2)]
    parts = tf.split(params, [size for size in sizes for _ in range(directions)])
    outputs, last = [], []
    for direction in range(directions):
        own = tf.concat(parts[direction::directions], 0)

        def turned(t: Any, direction: int = direction) -> Any:
            return tf.reverse_sequence(t, lengths, 0, 1) if direction else t

        y, after = loop(mode, turned(x), [s[direction] for s in states], own, lengths)
        outputs.append(turned(y))
        last.append(after)
    return tf.concat(outputs, -1), [tf.stack(parts) for parts in zip(*last)]


def _second_gradient(op: Any, *grads: Any) -> list[Any]:
    """The gradient of an op's gradient: that of a loop, which covers the requests of Keras's
    layers.
    """
    tf = tensorflow()
    mode = op.get_attr("rnn_mode").decode()
    time_major = mode not in OURS and op.get_attr("time_major")
    x, h, c, params, lengths, *_ = op.inputs
    axis = 0 if time_major else 1
    if mode not in GATES:
        raise LookupError(f"no gradient of the gradient of CudnnRNNV3 with rnn_mode {mode}")
    directions = 1 + _DIRECTIONS.index(op.get_attr("direction").decode())
    if h.shape[axis] != directions or (mode not in OURS and op.get_attr("dropout")):
        raise LookupError("no gradient of the gradient of CudnnRNNV3 with several layers")
    seeds = list(op.inputs[8:11])
    kept = 3 if mode == "lstm" else 2
    given = [x, h, *([c] if mode == "lstm" else []), params]

    def ordered(t: Any) -> Any:
        return t if time_major else tf.transpose(t, [1, 0, 2])

    with tf.GradientTape() as outer:
        outer.watch([*given, *seeds[:kept]])
        with tf.GradientTape() as inner:
            inner.watch(given)
            states = [ordered(s) for s in given[1:-1]]
            outputs, last = _network(mode, ordered(x), states, params, lengths)
            found = [ordered(outputs), *(ordered(s) for s in last)]
        first = inner.gradient(found, given, seeds[:kept])
    wanted = [grads[0], grads[1], *([grads[2]] if mode == "lstm" else []), grads[3]]
    second = outer.gradient(first, [*given, *seeds[:kept]], wanted)
    by_input = second[: len(given)]
    by_seed = second[len(given) :]
    if mode != "lstm":
        by_input.insert(2, None)
        by_seed.append(None)
    host_reserved = [] if mode in OURS else [None]
    return [*by_input, None, None, None, None, *by_seed, None, *host_reserved]


def patch_gradients(module: types.ModuleType) -> None:
    """TensorFlow: gradients of our op, and gradients of gradients, which come from a loop."""
    for name, gradient in (
        ("CudnnRNNBackpropV3", _second_gradient),
        (LAYER, _gradient),
        (GRADIENT, _second_gradient),
    ):
        if name not in module.ops.gradient_registry.list():
            module.ops.RegisterGradient(name)(gradient)
