"""Keras and tf_keras on WGPU: functions that they would compile with XLA by default run without it.

This affects only Keras's TensorFlow backend: with JAX or PyTorch behind it, Keras uses their
compilers.
"""

from __future__ import annotations

import functools
import threading
import types
from typing import Any

from tensorflow_wgpu._jit import ADVICE, is_refused
from tensorflow_wgpu._placement import has_kernel, runs_on


def patch_trainer(module: types.ModuleType) -> None:
    """Keras 3: `jit_compile="auto"` means False when there is a WGPU device. An explicit True is
    handled by `_jit`.
    """
    original = module.model_supports_jit
    # Trainer, or BaseTrainer from Keras 3.16 on.
    trainer = next(
        c for c in vars(module).values() if isinstance(vars_of(c).get("jit_compile"), property)
    )
    explicit = threading.local()

    def on_wgpu(*others: str) -> bool:
        return module.backend.backend() == "tensorflow" and runs_on(*others)

    @functools.wraps(original)
    def model_supports_jit(model: Any) -> bool:
        # Under tf.device("CPU") too: Keras does not use XLA on machines that have only the CPU.
        if not getattr(explicit, "value", False) and on_wgpu("CPU"):
            return False
        return original(model)

    jit_compile = trainer.jit_compile

    def set_jit_compile(self: Any, value: bool) -> None:
        if value and is_refused() and on_wgpu():
            raise ValueError(f"jit_compile=True cannot be used with a WGPU device: {ADVICE}.")
        explicit.value = True
        try:
            jit_compile.fset(self, value)
        finally:
            explicit.value = False

    compile_from_config = trainer.compile_from_config

    @functools.wraps(compile_from_config)
    def compile_without_jit(self: Any, config: dict[str, Any]) -> None:
        # A saved model holds the meaning of "auto" on the machine that trained it.
        if config and config.get("jit_compile") and on_wgpu():
            config = {**config, "jit_compile": "auto"}
        compile_from_config(self, config)

    module.model_supports_jit = model_supports_jit
    trainer.jit_compile = jit_compile.setter(set_jit_compile)
    trainer.compile_from_config = compile_without_jit


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes of a class; empty for anything else."""
    return dict(vars(value)) if isinstance(value, type) else {}


class _TensorFlowWithoutXla:
    """The module `tensorflow`, except that `tf.function(jit_compile=True)` leaves a function as it
    is.
    """

    def __init__(self, tf: types.ModuleType) -> None:
        self._tf = tf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tf, name)

    def function(self, *args: Any, **kwargs: Any) -> Any:
        """`tf.function`, or the identity."""
        if not args and kwargs == {"jit_compile": True}:
            return lambda function: function
        return self._tf.function(*args, **kwargs)


def patch_nn(module: types.ModuleType) -> None:
    """Keras 3: grouped and channels-first 3-D convolutions, which Keras compiles with XLA, run as
    plain ops.
    """
    with_xla = module.conv
    names = {**with_xla.__globals__, "tf": _TensorFlowWithoutXla(module.tf)}
    without_xla = types.FunctionType(
        with_xla.__code__, names, with_xla.__name__, with_xla.__defaults__, with_xla.__closure__
    )
    without_xla.__kwdefaults__ = with_xla.__kwdefaults__

    @functools.wraps(with_xla)
    def conv(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not runs_on():
            return with_xla(inputs, *args, **kwargs)
        if len(inputs.shape) == 5 and not has_kernel("Conv3D"):
            with module.tf.device("CPU:0"):
                return with_xla(inputs, *args, **kwargs)
        return without_xla(inputs, *args, **kwargs)

    module.conv = conv


def patch_legacy_conv(module: types.ModuleType) -> None:
    """tf_keras: grouped convolutions run as plain ops. The rest of tf_keras knows that pluggable
    devices have no XLA.
    """
    with_xla = module.Conv._jit_compiled_convolution_op

    def convolution_op(self: Any, inputs: Any, kernel: Any) -> Any:
        if runs_on():
            return self.convolution_op(inputs, kernel)
        # A tf.function is bound to its object by the descriptor protocol.
        return with_xla.__get__(self, type(self))(inputs, kernel)

    module.Conv._jit_compiled_convolution_op = convolution_op
