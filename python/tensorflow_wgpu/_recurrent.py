"""LSTM, GRU and SimpleRNN layers of Keras, and LSTM and GRU of tf_keras, as one op each on WGPU,
in the place of a loop over time steps.

The op is CudnnRNNV3, which the plug-in has kernels for. Numbers are those of the loop, for any
mask. What the op cannot express (other activations, recurrent dropout, `reset_after=False`,
`unroll`, lengths of ragged rows) stays a loop, and so does everything under
`TF_WGPU_RECURRENT=loop`, on other devices, and in models that are exported: the op has no kernel
on a CPU.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensorflow_wgpu._library import device_type
from tensorflow_wgpu._placement import kernel_types, runs_on

log = logging.getLogger("tensorflow_wgpu")

#: `loop` leaves recurrent layers as they are.
VARIABLE = "TF_WGPU_RECURRENT"

#: Gates of a unit of each kind of layer.
_GATES = {"gru": 3, "lstm": 4, "rnn_relu": 1, "rnn_tanh": 1}
#: The activations of layers with one gate, by the names that the op has for these layers.
_ACTIVATIONS = {"rnn_relu": "relu", "rnn_tanh": "tanh"}

_portable = threading.local()


@contextmanager
def portable() -> Iterator[None]:
    """What is traced meanwhile, by this thread, must run on other devices too."""
    before = getattr(_portable, "value", False)
    _portable.value = True
    try:
        yield
    finally:
        _portable.value = before


@functools.cache
def _is_asked_for() -> bool:
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "loop", "fused"):
        log.warning("%s=%s is neither loop nor fused and is ignored", VARIABLE, value)
    return value != "loop"


def is_fused(dtype: Any) -> bool:
    """Whether a recurrent layer that is built or called now becomes one op, if it can, for tensors
    of a type.
    """
    return (
        _is_asked_for()
        and not getattr(_portable, "value", False)
        and runs_on()
        and dtype in kernel_types("CudnnRNNV3", "T")
    )


def _tf() -> types.ModuleType:
    return sys.modules["tensorflow"]


def _lstm_params(kernel: Any, recurrent: Any, bias: Any) -> list[Any]:
    """The parts of `params`. Both have the gates input, forget, candidate, output, or one gate."""
    tf = _tf()
    none = tf.zeros_like(kernel[0])
    # Keras has one bias, the op one for the input and one for the outputs before.
    return [tf.transpose(kernel), tf.transpose(recurrent), none, none if bias is None else bias]


def _gru_params(kernel: Any, recurrent: Any, bias: Any) -> list[Any]:
    """The parts of `params`. Keras has the update gate first, the op the reset gate."""
    tf = _tf()

    @tf.custom_gradient
    def swapped(gates: Any) -> tuple[Any, Callable[[Any], Any]]:
        # As int64 the order lies on the device. The gradient of gathering anything would add up.
        order = tf.constant([1, 0, 2], tf.int64)
        return tf.gather(gates, order, axis=1), swapped

    def of(matrix: Any) -> Any:
        return swapped(tf.reshape(matrix, [-1, 3, matrix.shape[1] // 3]))

    matrices = [tf.transpose(of(matrix), [1, 2, 0]) for matrix in (kernel, recurrent)]
    return [*matrices, tf.zeros_like(kernel[:2]) if bias is None else of(bias)]


def _run(mode: str, x: Any, states: list[Any], params: list[Any], lengths: Any, time_major: bool):
    """The op, whose states have no dimension for layers here. Returns outputs and states."""
    tf = _tf()
    flat = [tf.reshape(part, [-1]) for part in params]
    axis = 0 if time_major else 1
    state = [tf.expand_dims(s, axis) for s in states]
    outputs, h, c, _, _ = tf.raw_ops.CudnnRNNV3(
        input=x,
        input_h=state[0],
        input_c=state[1] if mode == "lstm" else tf.zeros([], x.dtype),
        params=tf.concat(flat, 0),
        sequence_lengths=lengths,
        rnn_mode=mode,
        time_major=time_major,
        is_training=True,
    )
    return outputs, [tf.squeeze(s, axis) for s in ([h, c] if mode == "lstm" else [h])]


def loop(mode: str, x: Any, states: list[Any], params: Any, lengths: Any) -> tuple[Any, list[Any]]:
    """What the op computes of one layer in one direction, as plain operations; steps come first."""
    tf = _tf()
    steps, units, gates = tf.shape(x)[0], states[0].shape[-1], _GATES[mode]
    sizes = [gates * units * n for n in (x.shape[-1], units, 1, 1)]
    weights, recurrent, bias, recurrent_bias = tf.split(params, sizes)
    weights = tf.reshape(weights, [gates * units, -1])
    recurrent = tf.reshape(recurrent, [gates * units, units])
    from_inputs = tf.einsum("sbi,gi->sbg", x, weights) + bias

    def step(before: tuple[Any, ...], now: tuple[Any, Any]) -> tuple[Any, ...]:
        _, h, *cells = before
        from_input = tf.split(now[0], gates, axis=-1)
        from_h = tf.split(
            tf.linalg.matmul(h, recurrent, transpose_b=True) + recurrent_bias, gates, axis=-1
        )
        if mode == "lstm":
            i, f, g, o = (a + b for a, b in zip(from_input, from_h))
            new = [tf.sigmoid(f) * cells[0] + tf.sigmoid(i) * tf.tanh(g)]
            output = tf.sigmoid(o) * tf.tanh(new[0])
        elif mode in _ACTIVATIONS:
            activation = tf.tanh if mode == "rnn_tanh" else tf.nn.relu
            output, new = activation(from_input[0] + from_h[0]), []
        else:
            r, u = (tf.sigmoid(a + b) for a, b in zip(from_input[:2], from_h[:2]))
            output = (1 - u) * tf.tanh(from_input[2] + r * from_h[2]) + u * h
            new = []
        valid = (now[1] < lengths)[:, tf.newaxis]
        last = [tf.where(valid, a, b) for a, b in zip([output, *new], [h, *cells])]
        return tf.where(valid, output, tf.zeros_like(output)), *last

    start = (tf.zeros_like(states[0]), *states)
    outputs, *all_states = tf.scan(step, (from_inputs, tf.range(steps)), start)
    return outputs, [s[-1] for s in all_states]


def _second_gradient(op: Any, *grads: Any) -> list[Any]:
    """The gradient of the op's gradient: that of a loop, for what Keras's layers ask for."""
    tf = _tf()
    mode, time_major = op.get_attr("rnn_mode").decode(), op.get_attr("time_major")
    x, h, c, params, lengths, *_ = op.inputs
    axis = 0 if time_major else 1
    if mode not in _GATES or op.get_attr("direction") != b"unidirectional":
        raise LookupError(f"no gradient of the gradient of CudnnRNNV3 with rnn_mode {mode}")
    if h.shape[axis] != 1 or op.get_attr("dropout"):
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
            states = [tf.squeeze(s, axis) for s in given[1:-1]]
            outputs, last = loop(mode, ordered(x), states, params, lengths)
            found = [ordered(outputs), *(tf.expand_dims(s, axis) for s in last)]
        first = inner.gradient(found, given, seeds[:kept])
    wanted = [grads[0], grads[1], *([grads[2]] if mode == "lstm" else []), grads[3]]
    second = outer.gradient(first, [*given, *seeds[:kept]], wanted)
    by_input = second[: len(given)]
    by_seed = second[len(given) :]
    if mode != "lstm":
        by_input.insert(2, None)
        by_seed.append(None)
    return [*by_input, None, None, None, None, *by_seed, None, None]


def patch_gradients(module: types.ModuleType) -> None:
    """TensorFlow: gradients of the gradients of recurrent layers, which a loop has."""
    name = "CudnnRNNBackpropV3"
    if name not in module.ops.gradient_registry.list():
        module.ops.RegisterGradient(name)(_second_gradient)


def _masked(run: Callable, x: Any, mask: Any, zero_output: bool) -> tuple[Any, list[Any]]:
    """`run(x, lengths)` on the steps where `mask` holds: they are moved to the front, and the
    outputs back to where they were. In between an output is the one before it, or zeros.

    Sequences come before steps here.
    """
    tf = _tf()
    kept = tf.cast(mask, tf.float32)
    # The largest first, and the first of equal ones: the order of the steps is kept.
    order = tf.math.top_k(kept, tf.shape(kept)[1]).indices
    # Exact: far fewer than 2^24 steps.
    done = tf.cast(tf.cumsum(kept, axis=1), tf.int32)
    outputs, states = run(tf.gather(x, order, batch_dims=1), done[:, -1])
    spread = tf.gather(outputs, tf.maximum(done - 1, 0), batch_dims=1)
    shown = mask if zero_output else done > 0
    return tf.where(shown[..., tf.newaxis], spread, tf.zeros_like(spread)), states


def _layer(
    mode: str,
    x: Any,
    states: list[Any],
    params: list[Any],
    mask: Any,
    *,
    time_major: bool,
    go_backwards: bool,
    zero_output: bool,
) -> tuple[Any, Any, list[Any]]:
    """A layer as Keras's loop computes it: the last output, all outputs in the order of the loop,
    and the last states.
    """
    tf = _tf()
    steps = 0 if time_major else 1
    if go_backwards:
        x = tf.reverse(x, [steps])
    if mask is None:
        shape = tf.shape(x)
        lengths = tf.fill([shape[1 - steps]], shape[steps])
        outputs, last = _run(mode, x, states, params, lengths, time_major)
        return last[0], outputs, last
    if mask.shape.rank == 3:
        mask = tf.squeeze(mask, 2)
    mask = tf.cast(mask, tf.bool)
    if go_backwards:
        mask = tf.reverse(mask, [steps])
    if time_major:
        x, mask = tf.transpose(x, [1, 0, 2]), tf.transpose(mask)

    def run(x: Any, lengths: Any) -> tuple[Any, list[Any]]:
        return _run(mode, x, states, params, lengths, time_major=False)

    outputs, last = _masked(run, x, mask, zero_output)
    last_output = outputs[:, -1]
    return last_output, tf.transpose(outputs, [1, 0, 2]) if time_major else outputs, last


def _mode(layer: Any, gates: str, functions: types.ModuleType) -> str | None:
    """The kind of layer that computes what a layer of Keras 3 does; None where the op has none.

    `gates` is the kind of a layer with gates; empty for one without.
    """
    cell = layer.cell
    if (
        getattr(layer, "use_cudnn", "auto") not in ("auto", True)
        or cell.recurrent_dropout
        or layer.unroll
        or not getattr(cell, "reset_after", True)
    ):
        return None
    if gates:
        usual = cell.activation is functions.tanh and cell.recurrent_activation is functions.sigmoid
        return gates if usual else None
    known = _ACTIVATIONS.items()
    return next((m for m, name in known if cell.activation is getattr(functions, name)), None)


def _patch_layer(module: types.ModuleType, name: str, gates: str, parts: Callable) -> None:
    """Keras 3: the loop of a layer. One that has none of its own gets one."""
    cls = getattr(module, name)
    original = cls.inner_loop
    # Names that another version lacks end the patch here, not a call.
    backend, functions = module.backend.backend, module.activations
    is_nested = sys.modules["keras.src.tree"].is_nested
    to_tensor = module.ops.convert_to_tensor
    _ = functions.tanh, functions.sigmoid, functions.relu

    @functools.wraps(original)
    def inner_loop(
        self: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False
    ) -> Any:
        mode = _mode(self, gates, functions) if backend() == "tensorflow" else None
        if mode is None or not is_fused(sequences.dtype):
            return original(self, sequences, initial_state, mask, training=training)
        tf = _tf()
        cell = self.cell
        if is_nested(mask):
            mask = mask[0]
        states = list(initial_state) if is_nested(initial_state) else [initial_state]
        x = tf.convert_to_tensor(sequences)
        if training and cell.dropout:
            x *= tf.cast(cell.get_dropout_mask(x[:, 0, :]), x.dtype)[:, tf.newaxis, :]

        def value(variable: Any) -> Any:
            return tf.cast(to_tensor(variable), x.dtype)

        bias = None if cell.bias is None else value(cell.bias)
        params = parts(value(cell.kernel), value(cell.recurrent_kernel), bias)
        return _layer(
            mode,
            x,
            [tf.cast(s, x.dtype) for s in states],
            params,
            mask,
            time_major=False,
            go_backwards=self.go_backwards,
            zero_output=self.zero_output_for_mask,
        )

    cls.inner_loop = inner_loop


def patch_lstm(module: types.ModuleType) -> None:
    """Keras 3's LSTM."""
    _patch_layer(module, "LSTM", "lstm", _lstm_params)


def patch_gru(module: types.ModuleType) -> None:
    """Keras 3's GRU."""
    _patch_layer(module, "GRU", "gru", _gru_params)


def patch_simple_rnn(module: types.ModuleType) -> None:
    """Keras 3's SimpleRNN, which inherits its loop."""
    _patch_layer(module, "SimpleRNN", "", _lstm_params)


def _patch_legacy(module: types.ModuleType, mode: str, parts: Callable) -> None:
    """tf_keras: the two functions that layers call once they know that the op would do."""
    if device_type() == "GPU":
        # Grappler would choose the variant for cuDNN by the device's type. See patch_rnn.
        setattr(module, f"{mode}_with_backend_selection", getattr(module, f"standard_{mode}"))
    runtime = module.gru_lstm_utils.runtime
    gpu = module.gru_lstm_utils.RUNTIME_GPU

    def replaced(original: Callable) -> Callable:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            x = arguments["inputs"]
            if arguments["sequence_lengths"] is not None or not is_fused(x.dtype):
                return original(*args, **kwargs)
            tf = _tf()
            weights = [arguments[k] for k in ("kernel", "recurrent_kernel", "bias")]
            names = ("init_h", "init_c") if mode == "lstm" else ("init_h",)
            last_output, outputs, states = _layer(
                mode,
                x,
                [arguments[name] for name in names],
                parts(*(tf.convert_to_tensor(w) for w in weights)),
                arguments["mask"],
                time_major=arguments["time_major"],
                go_backwards=arguments["go_backwards"],
                zero_output=arguments["zero_output_for_mask"],
            )
            if not arguments["return_sequences"]:
                outputs = tf.expand_dims(last_output, 0 if arguments["time_major"] else 1)
            return last_output, outputs, *states, runtime(gpu)

        return call

    for name in (f"standard_{mode}", f"{mode}_with_backend_selection"):
        setattr(module, name, replaced(getattr(module, name)))


def patch_legacy_lstm(module: types.ModuleType) -> None:
    """tf_keras's LSTM."""
    _patch_legacy(module, "lstm", _lstm_params)


def patch_legacy_gru(module: types.ModuleType) -> None:
    """tf_keras's GRU."""
    _patch_legacy(module, "gru", _gru_params)


def _made_portable(function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with portable():
            return function(*args, **kwargs)

    return call


def patch_rnn(module: types.ModuleType) -> None:
    """Keras 3, where our devices have the type GPU: Keras takes no cuDNN path of its own. Without
    CUDA it orders the gates of a GRU as MIOpen does, and not as the op's definition says.
    """
    original = module._is_gpu_available

    @functools.wraps(original)
    def is_gpu_available() -> bool:
        return device_type() != "GPU" and original()

    module._is_gpu_available = is_gpu_available


def patch_model(module: types.ModuleType) -> None:
    """Keras 3: exported models keep their loops, so that they run everywhere."""
    module.Model.export = _made_portable(module.Model.export)


def patch_export(module: types.ModuleType) -> None:
    """The same for what is put into an archive piece by piece."""
    archives = [c for name, c in vars(module).items() if name.endswith("ExportArchive")]
    for archive in archives:
        for name in ("add_endpoint", "write_out"):
            setattr(archive, name, _made_portable(getattr(archive, name)))
    if not archives:
        raise AttributeError("ExportArchive")


def patch_legacy_save(module: types.ModuleType) -> None:
    """tf_keras: so do models saved as a SavedModel."""
    module.save = _made_portable(module.save)
