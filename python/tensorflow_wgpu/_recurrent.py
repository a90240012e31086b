"""LSTM, GRU and SimpleRNN layers of Keras and tf_keras as one op each on WGPU, in place of a loop
over time steps.

The op is that of `_recurrent_ops`. Results are those of the loop, for any mask. A layer that the
op cannot express (other activations, recurrent dropout, `unroll`, lengths of ragged rows) stays a
loop. So do all layers under `TF_WGPU_RECURRENT=loop`, on other devices, and in models that are
exported: the op has no kernel on a CPU.
"""

from __future__ import annotations

import functools
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
from tensorflow_wgpu._recurrent_ops import ACTIVATIONS, LAYER, Weights, is_defined, run, tensorflow
from tensorflow_wgpu._stock import Stock

log = logging.getLogger("tensorflow_wgpu")

#: `loop` leaves recurrent layers as they are.
VARIABLE = "TF_WGPU_RECURRENT"

_portable = threading.local()


@contextmanager
def portable() -> Iterator[None]:
    """Functions that this thread traces meanwhile must run on other devices too."""
    before = getattr(_portable, "value", False)
    _portable.value = True
    try:
        yield
    finally:
        _portable.value = before


@functools.cache
def _is_asked_for() -> bool:
    return os.environ.get(VARIABLE, "").strip().lower() != "loop"


def is_fused(dtype: Any) -> bool:
    """Whether a recurrent layer that is built or called now becomes one op, for tensors of a
    type.
    """
    if not (_is_asked_for() and not getattr(_portable, "value", False) and runs_on()):
        return False
    return is_defined() and dtype in kernel_types(LAYER, "T")


def _masked(run: Callable, x: Any, mask: Any, zero_output: bool) -> tuple[Any, list[Any]]:
    """Runs `run(x, lengths)` on the steps where `mask` holds. These steps are moved to the front,
    and the outputs back to their places. An output of a masked step is the one before it, or zeros.

    Sequences come before steps here.
    """
    tf = tensorflow()
    kept = tf.cast(mask, tf.float32)
    # The largest values first, and the first of equal ones first, so the order of the steps is
    # kept.
    order = tf.math.top_k(kept, tf.shape(kept)[1]).indices
    # Exact: far fewer than 2^24 steps.
    done = tf.cast(tf.cumsum(kept, axis=1), tf.int32)
    outputs, states = run(tf.gather(x, order, batch_dims=1), done[:, -1])
    spread = tf.gather(outputs, tf.maximum(done - 1, 0), batch_dims=1)
    shown = mask if zero_output else done > 0
    return tf.where(shown[..., tf.newaxis], spread, tf.zeros_like(spread)), states


def run_layer(
    mode: str,
    x: Any,
    states: list[Any],
    weights: Weights,
    mask: Any,
    *,
    time_major: bool,
    go_backwards: bool,
    zero_output: bool,
) -> tuple[Any, Any, list[Any]]:
    """The results of a layer as Keras's loop computes them: the last output, all outputs in the
    order of the loop, and the last states.
    """
    tf = tensorflow()
    steps = 0 if time_major else 1
    if go_backwards:
        x = tf.reverse(x, [steps])
    if mask is None:
        shape = tf.shape(x)
        lengths = tf.fill([shape[1 - steps]], shape[steps])
        outputs, [last] = run(mode, x, [states], [weights], lengths, time_major)
        return last[0], outputs, last
    if mask.shape.rank == 3:
        mask = tf.squeeze(mask, 2)
    mask = tf.cast(mask, tf.bool)
    if go_backwards:
        mask = tf.reverse(mask, [steps])
    if time_major:
        x, mask = tf.transpose(x, [1, 0, 2]), tf.transpose(mask)

    def run_for(x: Any, lengths: Any) -> tuple[Any, list[Any]]:
        return run(mode, x, [states], [weights], lengths, time_major=False)

    outputs, [last] = _masked(run_for, x, mask, zero_output)
    last_output = outputs[:, -1]
    return last_output, tf.transpose(outputs, [1, 0, 2]) if time_major else outputs, last


def mode_of(layer: Any, stock: Stock, gates: str, functions: types.ModuleType) -> str | None:
    """The kind of layer that computes the same as a layer of Keras; None if there is none.

    `stock` is the class of the cells that Keras gives such layers. `gates` is the kind of a layer
    with gates; empty for one without.
    """
    cell = layer.cell
    if (
        not stock.made(cell)
        or getattr(layer, "use_cudnn", "auto") not in ("auto", True)
        or getattr(cell, "activity_regularizer", None) is not None
        or cell.recurrent_dropout
        or layer.unroll
    ):
        return None
    if gates:
        usual = cell.activation is functions.tanh and cell.recurrent_activation is functions.sigmoid
        mode = gates if getattr(cell, "reset_after", True) else f"{gates}_reset_before"
        return mode if usual else None
    known = ACTIVATIONS.items()
    return next((m for m, name in known if cell.activation is getattr(functions, name)), None)


def weights_of(cell: Any, value: Callable) -> Weights:
    """The weights of a layer's cell; `value` reads a variable."""
    bias = None if cell.bias is None else value(cell.bias)
    return value(cell.kernel), value(cell.recurrent_kernel), bias


def _weights(layer: Any, dtype: Any) -> Weights:
    """The weights of a layer of Keras 3."""
    tf = tensorflow()
    to_tensor = sys.modules["keras.src.ops"].convert_to_tensor
    return weights_of(layer.cell, lambda variable: tf.cast(to_tensor(variable), dtype))


class _Pair:
    """The layers of a Bidirectional layer of Keras 3 that is being called. The first of them runs
    both as one op, if the op computes the same; the second takes its part of the results.
    """

    def __init__(self, forward: Any, backward: Any, has_states: bool) -> None:
        self.forward = forward
        self.backward = backward
        self.has_states = has_states
        self._left: tuple[Any, tuple] | None = None

    def _goes_together(self, modes: list[str | None], mask: Any, training: bool) -> bool:
        both = (self.forward, self.backward)
        return not (
            self.has_states
            or None in modes
            or modes[0] != modes[1]
            or self.forward.go_backwards
            or (mask is not None and len(mask.shape) != 2)
            or not all(layer.built and not layer.stateful for layer in both)
            or self.forward.units != self.backward.units
            or self.forward.compute_dtype != self.backward.compute_dtype
            or (training and any(layer.cell.dropout for layer in both))
            # The output that stands for masked steps differs between the directions.
            or (
                mask is not None
                and any(layer.zero_output_for_mask != layer.return_sequences for layer in both)
            )
        )

    def run(
        self,
        layer: Any,
        stock: Stock,
        modes: Callable[[Any], str | None],
        x: Any,
        states: list[Any],
        mask: Any,
        training: bool,
    ) -> tuple | None:
        """The results of the loop of one of the layers; None if each layer runs by itself. `stock`
        is the class of layers whose calls add nothing to their loops.
        """
        tf = tensorflow()
        graph = None if tf.executing_eagerly() else x.graph
        if layer is self.backward and self._left is not None and self._left[0] is graph:
            results, self._left = self._left[1], None
            return results
        both = [self.forward, self.backward]
        kinds = [modes(layer) if stock.made(layer) else None for layer in both]
        if layer is not self.forward or not self._goes_together(kinds, mask, training):
            return None
        weights = [_weights(layer, x.dtype) for layer in both]

        def run_for(x: Any, lengths: Any) -> tuple[Any, list[list[Any]]]:
            return run(kinds[0], x, [states, states], weights, lengths, time_major=False)

        if mask is None:
            shape = tf.shape(x)
            outputs, last = run_for(x, tf.fill([shape[0]], shape[1]))
        else:
            outputs, last = _masked(run_for, x, tf.cast(mask, tf.bool), zero_output=True)
        ahead, back = tf.split(outputs, 2, axis=-1)
        self._left = graph, (last[1][0], tf.reverse(back, [1]), last[1])
        return last[0][0], ahead, last[0]


_current = threading.local()


def patch_bidirectional(module: types.ModuleType) -> None:
    """Keras 3: both directions of a layer as one op."""
    cls = module.Bidirectional
    original = cls.call

    @functools.wraps(original)
    def call(
        self: Any, sequences: Any, initial_state: Any = None, mask: Any = None, training: Any = None
    ) -> Any:
        before = getattr(_current, "pair", None)
        _current.pair = _Pair(self.forward_layer, self.backward_layer, initial_state is not None)
        try:
            return original(
                self, sequences, initial_state=initial_state, mask=mask, training=training
            )
        finally:
            _current.pair = before

    cls.call = call


def _patch_layer(module: types.ModuleType, name: str, gates: str) -> None:
    """Patches the loop of a layer of Keras 3. A layer without a loop of its own gets one."""
    cls = getattr(module, name)
    original = cls.inner_loop
    stock_layer, stock_cell = Stock(cls), Stock(getattr(module, f"{name}Cell"))
    # Names that another version lacks fail here, in the patch, and not in a call.
    backend, functions = module.backend.backend, module.activations
    is_nested = sys.modules["keras.src.tree"].is_nested
    _ = sys.modules["keras.src.ops"].convert_to_tensor
    _ = [getattr(functions, name) for name in ACTIVATIONS.values()]

    @functools.wraps(original)
    def inner_loop(
        self: Any, sequences: Any, initial_state: Any, mask: Any, training: bool = False
    ) -> Any:
        def modes(layer: Any) -> str | None:
            # A cell casts inputs to its own type.
            casts = getattr(layer.cell, "compute_dtype", None) != sequences.dtype
            return None if casts else mode_of(layer, stock_cell, gates, functions)

        mode = modes(self) if backend() == "tensorflow" else None
        if mode is None or not is_fused(sequences.dtype):
            return original(self, sequences, initial_state, mask, training=training)
        tf = tensorflow()
        cell = self.cell
        if is_nested(mask):
            mask = mask[0]
        states = list(initial_state) if is_nested(initial_state) else [initial_state]
        x = tf.convert_to_tensor(sequences)
        pair = getattr(_current, "pair", None)
        if pair is not None:
            zeros = [tf.cast(s, x.dtype) for s in states]
            found = pair.run(self, stock_layer, modes, x, zeros, mask, training)
            if found is not None:
                return found
        if training and cell.dropout:
            x *= tf.cast(cell.get_dropout_mask(x[:, 0, :]), x.dtype)[:, tf.newaxis, :]
        return run_layer(
            mode,
            x,
            [tf.cast(s, x.dtype) for s in states],
            _weights(self, x.dtype),
            mask,
            time_major=False,
            go_backwards=self.go_backwards,
            zero_output=self.zero_output_for_mask,
        )

    cls.inner_loop = inner_loop
    stock_layer.note()


def patch_lstm(module: types.ModuleType) -> None:
    """Keras 3's LSTM."""
    _patch_layer(module, "LSTM", "lstm")


def patch_gru(module: types.ModuleType) -> None:
    """Keras 3's GRU."""
    _patch_layer(module, "GRU", "gru")


def patch_simple_rnn(module: types.ModuleType) -> None:
    """Keras 3's SimpleRNN, which inherits its loop."""
    _patch_layer(module, "SimpleRNN", "")


def made_portable(function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with portable():
            return function(*args, **kwargs)

    return call


def patch_rnn(module: types.ModuleType) -> None:
    """Keras 3, if our devices have the type GPU: Keras does not choose cuDNN itself. Without CUDA
    it would order the gates of a GRU like MIOpen, and not like the op's definition.
    """
    original = module._is_gpu_available

    @functools.wraps(original)
    def is_gpu_available() -> bool:
        return device_type() != "GPU" and original()

    module._is_gpu_available = is_gpu_available


def patch_model(module: types.ModuleType) -> None:
    """Keras 3: exported models keep their loops, so that they run everywhere."""
    module.Model.export = made_portable(module.Model.export)


def patch_export(module: types.ModuleType) -> None:
    """Does the same for functions that are put into an archive piece by piece."""
    archives = [c for name, c in vars(module).items() if name.endswith("ExportArchive")]
    for archive in archives:
        for name in ("add_endpoint", "write_out"):
            setattr(archive, name, made_portable(getattr(archive, name)))
    if not archives:
        raise AttributeError("ExportArchive")
