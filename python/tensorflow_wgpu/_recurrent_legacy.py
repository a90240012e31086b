"""LSTM, GRU and SimpleRNN layers of tf_keras: the patches that run them as the op of `_recurrent`.

Layers that CudnnRNN could compute call functions of their modules, which are replaced. The others
build their loops with `backend.rnn`, which does not know for which layer: so the layers' `call`
tells it.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tensorflow_wgpu._library import device_type
from tensorflow_wgpu._recurrent import (
    is_fused,
    made_portable,
    mode_of,
    run_layer,
    weights_of,
)
from tensorflow_wgpu._recurrent_ops import GATES, tensorflow
from tensorflow_wgpu._stock import Stock


class _Call(NamedTuple):
    """A layer that is being called."""

    layer: Any
    #: None if no op computes the same.
    mode: str | None
    training: Any


_current = threading.local()


@contextmanager
def _within(call: _Call | None) -> Iterator[None]:
    before = getattr(_current, "value", None)
    _current.value = call
    try:
        yield
    finally:
        _current.value = before


def _patch_functions(module: types.ModuleType, mode: str) -> None:
    """The two functions that layers call once they know that CudnnRNN could compute them."""
    if device_type() == "GPU":
        # Grappler would choose the variant for cuDNN by the device's type: see `patch_rnn`.
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
            tf = tensorflow()
            weights = [arguments[k] for k in ("kernel", "recurrent_kernel", "bias")]
            names = ("init_h", "init_c") if mode == "lstm" else ("init_h",)
            last_output, outputs, states = run_layer(
                mode,
                x,
                [arguments[name] for name in names],
                tuple(tf.convert_to_tensor(w) for w in weights),
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


def _dropped(call: _Call, x: Any, time_major: bool) -> Any:
    """The inputs times the layer's dropout mask, which is the same for all steps."""
    cell = call.layer.cell
    if not cell.dropout:
        return x
    tf = tensorflow()
    first = x[0] if time_major else x[:, 0]
    masks = cell.get_dropout_mask_for_cell(first, call.training, count=GATES[call.mode])
    mask = masks[0] if isinstance(masks, (list, tuple)) else masks
    return x * tf.cast(tf.expand_dims(mask, 0 if time_major else 1), x.dtype)


def patch_backend(module: types.ModuleType) -> None:
    """The loop over time steps."""
    original = module.rnn
    signature = inspect.signature(original)

    @functools.wraps(original)
    def rnn(*args: Any, **kwargs: Any) -> Any:
        call = getattr(_current, "value", None)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        x, length = given["inputs"], given["input_length"]
        if (
            call is None
            or call.mode is None
            or given["constants"]
            # The length of ragged rows is a tensor.
            or not (length is None or isinstance(length, int))
            or not is_fused(x.dtype)
            # The cell would cast the inputs to its own type.
            or call.layer.cell.compute_dtype != x.dtype
        ):
            # The loop's cells do not belong to the layer.
            with _within(None):
                return original(*args, **kwargs)
        tf = tensorflow()
        cell, time_major = call.layer.cell, given["time_major"]

        def value(variable: Any) -> Any:
            return tf.cast(tf.convert_to_tensor(variable), x.dtype)

        last_output, outputs, states = run_layer(
            call.mode,
            _dropped(call, x, time_major),
            [value(state) for state in given["initial_states"]],
            weights_of(cell, value),
            given["mask"],
            time_major=time_major,
            go_backwards=given["go_backwards"],
            zero_output=given["zero_output_for_mask"],
        )
        if not given["return_all_outputs"]:
            outputs = tf.expand_dims(last_output, 0 if time_major else 1)
        return last_output, outputs, states

    module.rnn = rnn


def _patch_call(module: types.ModuleType, name: str, gates: str) -> None:
    """Makes a layer's `call` tell the loop that it builds about the layer."""
    cls = getattr(module, name)
    original, functions = cls.call, module.activations
    stock = Stock(getattr(module, f"{name}Cell"))

    # The layer reads the names of the arguments.
    @functools.wraps(original)
    def call(
        self: Any, inputs: Any, mask: Any = None, training: Any = None, initial_state: Any = None
    ) -> Any:
        mode = mode_of(self, stock, gates, functions)
        # Another implementation has a dropout mask for each gate.
        if mode and self.cell.dropout and getattr(self.cell, "implementation", 2) != 2:
            mode = None
        with _within(_Call(self, mode, training)):
            return original(self, inputs, mask=mask, training=training, initial_state=initial_state)

    cls.call = call


def patch_lstm(module: types.ModuleType) -> None:
    """LSTM layers."""
    _patch_functions(module, "lstm")
    _patch_call(module, "LSTM", "lstm")


def patch_gru(module: types.ModuleType) -> None:
    """GRU layers."""
    _patch_functions(module, "gru")
    _patch_call(module, "GRU", "gru")


def patch_gru_v1(module: types.ModuleType) -> None:
    """GRU layers of `tf.compat.v1`."""
    _patch_call(module, "GRU", "gru")


def patch_lstm_v1(module: types.ModuleType) -> None:
    """LSTM layers of `tf.compat.v1`."""
    _patch_call(module, "LSTM", "lstm")


def patch_simple_rnn(module: types.ModuleType) -> None:
    """SimpleRNN layers."""
    _patch_call(module, "SimpleRNN", "")


def patch_save(module: types.ModuleType) -> None:
    """Models that are saved as a SavedModel keep their loops, so that they run everywhere."""
    module.save = made_portable(module.save)
