"""Patches modules of TensorFlow and Keras when they are imported. The library imports this when it
finds a device.

Keras compiles models with XLA as soon as a device other than the CPU is present, and TensorFlow
then fails with "No JIT device registered for WGPU", because XLA has no compiler for WGPU devices.
TensorFlow has no interface to declare that, hence these patches. The table lists the patch of each
module. A module that is not as a patch expects stays as it is, with a warning. Nothing here imports
TensorFlow or Keras by itself.
"""

from __future__ import annotations

import logging
import sys
import types

from tensorflow_wgpu import (
    _converters,
    _details,
    _distribute,
    _fork_hook,
    _jit,
    _keras,
    _library,
    _memory,
    _prefetch,
    _recurrent,
    _recurrent_legacy,
    _recurrent_ops,
    _visible,
    _weights,
)
from tensorflow_wgpu._import_hook import Patch, PostImport

log = logging.getLogger("tensorflow_wgpu")


def patch_context(module: types.ModuleType) -> None:
    """Names adapters, and hides devices if the program asks for it. Also applies
    `TF_WGPU_FALLBACK`: float ops that run on the CPU are logged or refused, in this whole process.
    """
    watch_fallbacks()
    _details.patch_context(module)
    _visible.patch_context(module)
    if _library.read("tensorflow_wgpu_pages"):
        _memory.patch_context(module)


def watch_fallbacks() -> None:
    """Installs the watch that `TF_WGPU_FALLBACK` asks for."""
    from tensorflow_wgpu import _fallbacks

    if mode := _fallbacks.mode():
        _fallbacks.install(mode)


PATCHES: dict[str, Patch] = {
    "tensorflow.python.eager.context": patch_context,
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": _jit.patch_function,
    "tensorflow.python.eager.polymorphic_function.function_context": _jit.patch_function_context,
    "tensorflow.python.eager.polymorphic_function.atomic_function": _jit.patch_atomic_function,
    "tensorflow.python.saved_model.function_deserialization": _jit.patch_deserialization,
    "tensorflow.python.distribute.mirrored_strategy": _distribute.patch_mirrored,
    "tensorflow.python.distribute.mirrored_run": _distribute.patch_gpu_device,
    "tensorflow.python.distribute.collective_all_reduce_strategy": _distribute.patch_collective,
    "tensorflow.python.distribute.parameter_server_strategy_v2": (
        _distribute.patch_parameter_server
    ),
    "tensorflow.python.data.ops.multi_device_iterator_ops": _distribute.patch_multi_device,
    "tensorflow.python.data.experimental.ops.prefetching_ops": _prefetch.patch_prefetching,
    "keras.src.trainers.trainer": _keras.patch_trainer,
    "keras.src.backend.tensorflow.nn": _keras.patch_nn,
    "keras.src.backend.tensorflow.core": _weights.patch_variable,
    "keras.src.layers.core.dense": _weights.patch_layer,
    "keras.src.layers.core.einsum_dense": _weights.patch_layer,
    "keras.src.layers.core.embedding": _weights.patch_layer,
    "keras.src.layers.core.reversible_embedding": _weights.patch_layer,
    "tensorflow.python.ops.cudnn_rnn_grad": _recurrent_ops.patch_gradients,
    "keras.src.backend.tensorflow.rnn": _recurrent.patch_rnn,
    "keras.src.layers.rnn.lstm": _recurrent.patch_lstm,
    "keras.src.layers.rnn.gru": _recurrent.patch_gru,
    "keras.src.layers.rnn.simple_rnn": _recurrent.patch_simple_rnn,
    "keras.src.layers.rnn.bidirectional": _recurrent.patch_bidirectional,
    "keras.src.models.model": _recurrent.patch_model,
    "keras.src.export.export_lib": _recurrent.patch_export,
    "keras.src.export.saved_model": _recurrent.patch_export,
    "keras.src.export.saved_model_export_archive": _recurrent.patch_export,
    "tf_keras.src.layers.convolutional.base_conv": _keras.patch_legacy_conv,
    "tf_keras.src.backend": _recurrent_legacy.patch_backend,
    "tf_keras.src.layers.rnn.lstm": _recurrent_legacy.patch_lstm,
    "tf_keras.src.layers.rnn.lstm_v1": _recurrent_legacy.patch_lstm_v1,
    "tf_keras.src.layers.rnn.gru": _recurrent_legacy.patch_gru,
    "tf_keras.src.layers.rnn.gru_v1": _recurrent_legacy.patch_gru_v1,
    "tf_keras.src.layers.rnn.simple_rnn": _recurrent_legacy.patch_simple_rnn,
    "tf_keras.src.saving.legacy.saved_model.save": _recurrent_legacy.patch_save,
    **_converters.PATCHES,
}


def install() -> None:
    """Patches the modules that are imported already, and the others when they are imported. May be
    called again.
    """
    if not any(isinstance(finder, PostImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, PostImport(PATCHES, _jit.ADVICE))
        _fork_hook.install()


install()
