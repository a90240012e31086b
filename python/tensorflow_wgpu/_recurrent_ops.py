"""The op of recurrent layers on WGPU: one op for a layer, with its gradient and the gradient's
gradient. The plug-in defines it, with weights as Keras has them.

CudnnRNNV3, which programs may call, also gets a gradient of its gradient here.
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
#: The activations of layers with one gate, by the names that the op has for these layers.
ACTIVATIONS = {
    "rnn_linear": "linear",
    "rnn_relu": "relu",
    "rnn_sigmoid": "sigmoid",
    "rnn_tanh": "tanh",
}

LAYER = "_WgpuRecurrentLayer"
GRADIENT = "_WgpuRecurrentLayerGrad"

_ATTRIBUTES = ("rnn_mode", "directions", "time_major")

#: The kernel, the recurrent kernel and the bias or None of a layer, as Keras has them.
Weights = tuple[Any, Any, Any]


def tensorflow() -> types.ModuleType:
    """TensorFlow, which the caller has imported."""
    return sys.modules["tensorflow"]


@functools.cache
def is_defined() -> bool:
    """Whether TensorFlow has the op."""
    registry = importlib.import_module("tensorflow.python.framework.op_def_registry")
    return registry.get(LAYER) is not None


def run(
    mode: str,
    x: Any,
    states: list[list[Any]],
    weights: list[Weights],
    lengths: Any,
    time_major: bool,
) -> tuple[Any, list[list[Any]]]:
    """Runs the op, one direction for each item of `states` and of `weights`. Returns outputs and
    states.
    """
    tf = tensorflow()
    state = [_stacked(parts) for parts in zip(*states)]
    kernels, recurrent_kernels, biases = zip(*weights)
    columns = kernels[0].shape[-1]
    none = [2, columns] if mode == "gru" else [columns]
    inputs = {
        "input": x,
        "input_h": state[0],
        "input_c": state[1] if mode == "lstm" else tf.zeros([], x.dtype),
        "kernels": list(kernels),
        "recurrent_kernels": list(recurrent_kernels),
        "biases": [tf.zeros(none, x.dtype) if bias is None else bias for bias in biases],
        "sequence_lengths": tf.convert_to_tensor(lengths),
    }
    attributes = {
        "rnn_mode": mode.encode(),
        "directions": len(weights),
        "time_major": time_major,
    }
    found = _own_ops.call(LAYER, inputs, x.dtype, 4, **attributes, is_training=True)
    # Older releases' C API hides the states' shapes from the shape function.
    found[0].set_shape([None, None, sum(s[0].shape[-1] for s in states)])
    last = [_unstacked(s, len(weights)) for s in found[1 : 3 if mode == "lstm" else 2]]
    return found[0], [list(parts) for parts in zip(*last)]


def _stacked(parts: tuple[Any, ...]) -> Any:
    """States of directions, as one tensor. One direction needs no copy."""
    tf = tensorflow()
    return tf.stack(parts, 1) if len(parts) > 1 else tf.expand_dims(parts[0], 1)


def _unstacked(state: Any, directions: int) -> list[Any]:
    tf = tensorflow()
    return tf.unstack(state, directions, axis=1) if directions > 1 else [tf.squeeze(state, 1)]


def loop(
    mode: str, x: Any, states: list[Any], weights: Weights, lengths: Any
) -> tuple[Any, list[Any]]:
    """The op's results for one layer in one direction, as plain operations; steps come first."""
    tf = tensorflow()
    kernel, recurrent, bias = weights
    steps, gates = tf.shape(x)[0], GATES[mode]
    biases = tf.unstack(bias) if bias.shape.rank == 2 else (bias, tf.zeros_like(bias))
    bias, recurrent_bias = biases
    from_inputs = tf.einsum("sbi,ig->sbg", x, kernel) + bias

    def step(before: tuple[Any, ...], now: tuple[Any, Any]) -> tuple[Any, ...]:
        _, h, *cells = before
        from_input = tf.split(now[0], gates, axis=-1)

        def of(outputs: Any) -> list[Any]:
            all_gates = tf.linalg.matmul(outputs, recurrent) + recurrent_bias
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
            u, r = (tf.sigmoid(a + b) for a, b in zip(from_input[:2], from_h[:2]))
            from_before = r * from_h[2] if mode == "gru" else of(r * h)[2]
            output = (1 - u) * tf.tanh(from_input[2] + from_before) + u * h
            new = []
        valid = (now[1] < lengths)[:, tf.newaxis]
        last = [tf.where(valid, a, b) for a, b in zip([output, *new], [h, *cells])]
        return tf.where(valid, output, tf.zeros_like(output)), *last

    start = (tf.zeros_like(states[0]), *states)
    outputs, *all_states = tf.scan(step, (from_inputs, tf.range(steps)), start)
    return outputs, [s[-1] for s in all_states]


def cudnn_weights(
    mode: str, params: Any, directions: int, inputs: int, units: int
) -> list[Weights]:
    """The weights of a layer in CudnnRNN's `params`, direction by direction."""
    tf = tensorflow()
    gates = GATES[mode]

    def ordered(columns: Any) -> Any:
        if mode != "gru":
            return columns
        # Keras has the update gate first.
        reset, update, candidate = tf.split(columns, gates, axis=1)
        return tf.concat([update, reset, candidate], 1)

    def matrix(part: Any) -> Any:
        return ordered(tf.transpose(tf.reshape(part, [gates * units, -1])))

    sizes = [gates * units * n for n in (inputs, units)] * directions
    parts = tf.split(params, [*sizes, *[2 * gates * units] * directions])
    matrices = [matrix(part) for part in parts[:-directions]]
    biases = [ordered(tf.reshape(part, [2, gates * units])) for part in parts[-directions:]]
    return list(zip(matrices[::2], matrices[1::2], biases))


def _gradient(op: Any, *grads: Any) -> list[Any]:
    """The gradient of our op."""
    attributes = {name: op.get_attr(name) for name in _ATTRIBUTES}
    names = ("input", "input_h", "input_c", "kernels", "recurrent_kernels", "biases")
    given, directions = list(op.inputs), attributes["directions"]
    inputs = dict(zip(names, [*given[:3], *_weights(given, directions)]))
    inputs["sequence_lengths"] = given[-1]
    outputs = ("output", "output_h", "output_c")
    inputs |= dict(zip(outputs, op.outputs))
    inputs |= {f"{name}_backprop": grad for name, grad in zip(outputs, grads)}
    inputs["reserve_space"] = op.outputs[3]
    count = 3 + 3 * directions
    return [*_own_ops.call(GRADIENT, inputs, given[0].dtype, count, **attributes), None]


def _weights(inputs: list[Any], directions: int) -> list[list[Any]]:
    """Kernels, recurrent kernels and biases among the inputs of our ops."""
    return [inputs[3 + i * directions : 3 + (i + 1) * directions] for i in range(3)]


def _network(
    mode: str, x: Any, states: list[Any], weights: list[Weights], lengths: Any
) -> tuple[Any, list[Any]]:
    """The op's results for one layer in one or both directions, as plain operations; steps and
    directions come first.
    """
    tf = tensorflow()
    outputs, last = [], []
    for direction, own in enumerate(weights):

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
    mode, is_ours = op.get_attr("rnn_mode").decode(), op.type == GRADIENT
    time_major = op.get_attr("time_major")
    kept = 3 if mode == "lstm" else 2
    inputs, behind = list(op.inputs), 3 + (3 * op.get_attr("directions") if is_ours else 1)
    params, lengths, seeds = inputs[3:behind], inputs[behind], inputs[behind + 4 : behind + 7]
    # States have sequences first in our op.
    directions_first = time_major and not is_ours
    directions = inputs[1].shape[0 if directions_first else 1]
    if mode not in GATES:
        raise LookupError(f"no gradient of the gradient of CudnnRNNV3 with rnn_mode {mode}")
    if not is_ours:
        wanted = 1 + ("unidirectional", "bidirectional").index(op.get_attr("direction").decode())
        if directions != wanted or op.get_attr("dropout"):
            raise LookupError("no gradient of the gradient of CudnnRNNV3 with several layers")
    given = [*inputs[:kept], *params]

    def ordered(t: Any, is_ordered: bool = directions_first) -> Any:
        return t if is_ordered else tf.transpose(t, [1, 0, 2])

    with tf.GradientTape() as outer:
        outer.watch([*given, *seeds[:kept]])
        with tf.GradientTape() as inner:
            inner.watch(given)
            if is_ours:
                weights = list(zip(*_weights(inputs, directions)))
            else:
                extents = inputs[0].shape[-1], inputs[1].shape[-1]
                weights = cudnn_weights(mode, params[0], directions, *extents)
            states = [ordered(s) for s in inputs[1:kept]]
            x = ordered(inputs[0], time_major)
            outputs, last = _network(mode, x, states, weights, lengths)
            found = [ordered(outputs, time_major), *(ordered(s) for s in last)]
        first = inner.gradient(found, given, seeds[:kept])
    second = outer.gradient(first, [*given, *seeds[:kept]], [*grads[:kept], *grads[3:]])
    by_input, by_seed = second[: len(given)], second[len(given) :]
    no_cells = [None] * (3 - kept)
    by_input[kept:kept] = no_cells
    host_reserved = [] if is_ours else [None]
    return [*by_input, None, None, None, None, *by_seed, *no_cells, None, *host_reserved]


def patch_gradients(module: types.ModuleType) -> None:
    """TensorFlow: gradients of our op, and gradients of gradients, which come from a loop."""
    for name, gradient in (
        ("CudnnRNNBackpropV3", _second_gradient),
        (LAYER, _gradient),
        (GRADIENT, _second_gradient),
    ):
        if name not in module.ops.gradient_registry.list():
            module.ops.RegisterGradient(name)(gradient)
