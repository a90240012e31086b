"""Keeps XLA away from WGPU devices, which it cannot compile for. The library imports this when it finds a device.

Keras compiles models with XLA as soon as a device other than the CPU is present, and some convolutions in every case;
TensorFlow then fails with "No JIT device registered for WGPU". TensorFlow offers no place to say so, hence this: when
Keras's modules are imported, a few of their functions are replaced. Nothing here imports TensorFlow or Keras by itself.
"""

from __future__ import annotations

import functools
import importlib.abc
import logging
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

log = logging.getLogger("tensorflow_wgpu")

ADVICE = "XLA has no compiler for WGPU devices; leave jit_compile out, or run this under tf.device('CPU:0')"


def install() -> None:
    """Patches the modules that are imported already, and arranges for the others. May be called again."""
    if not any(isinstance(finder, _PostImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PostImport(dict(PATCHES)))


def has_wgpu() -> bool:
    """Whether TensorFlow sees a WGPU device."""
    context = sys.modules["tensorflow.python.eager.context"].context()
    return bool(context.list_physical_devices("WGPU"))


def scope_device_type() -> str | None:
    """The device type that the innermost `tf.device` asks for, None if there is none."""
    context = sys.modules["tensorflow.python.eager.context"].context()
    if context.executing_eagerly():
        names = [context.device_name]
    else:
        graph = sys.modules["tensorflow.python.framework.ops"].get_default_graph()
        # A function's graph does not show the scope around its call, which decides when it is silent.
        names = [str(spec.display_name) for spec in graph._device_function_stack.peek_objs()] + [context.device_name]
    for name in names:
        _, found, rest = (name or "").lower().rpartition("device:")
        if found:
            return rest.split(":")[0].upper()
    return None


def runs_on_wgpu() -> bool:
    """Whether what is built or called now will run on a WGPU device, which TensorFlow prefers to any other."""
    return has_wgpu() and scope_device_type() in (None, "WGPU")


def patch_function(module: types.ModuleType) -> None:
    """`tf.function(jit_compile=True)` called on WGPU says what to do instead of naming a missing JIT device."""
    original = module.Function._call

    @functools.wraps(original)
    def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._jit_compile and runs_on_wgpu():
            errors = sys.modules["tensorflow.python.framework.errors_impl"]
            message = f"tf.function(jit_compile=True) {self._name!r} cannot run on WGPU: {ADVICE}."
            raise errors.InvalidArgumentError(None, None, message)
        return original(self, *args, **kwargs)

    module.Function._call = _call


def patch_trainer(module: types.ModuleType) -> None:
    """Keras 3: `jit_compile="auto"` means False when there is a WGPU device, an explicit True there is an error."""
    original = module.model_supports_jit
    explicit = threading.local()

    @functools.wraps(original)
    def model_supports_jit(model: Any) -> bool:
        # Under tf.device("CPU") too: Keras does not use XLA on machines that have the CPU alone.
        if not getattr(explicit, "value", False) and has_wgpu() and scope_device_type() in (None, "WGPU", "CPU"):
            return False
        return original(model)

    jit_compile = module.Trainer.jit_compile

    def set_jit_compile(self: Any, value: bool) -> None:
        if value and runs_on_wgpu():
            raise ValueError(f"jit_compile=True cannot be used with a WGPU device: {ADVICE}.")
        explicit.value = True
        try:
            jit_compile.fset(self, value)
        finally:
            explicit.value = False

    compile_from_config = module.Trainer.compile_from_config

    @functools.wraps(compile_from_config)
    def compile_without_jit(self: Any, config: dict[str, Any]) -> None:
        # A saved model holds what "auto" meant on the machine that trained it.
        if config and config.get("jit_compile") and runs_on_wgpu():
            config = {**config, "jit_compile": "auto"}
        compile_from_config(self, config)

    module.model_supports_jit = model_supports_jit
    module.Trainer.jit_compile = jit_compile.setter(set_jit_compile)
    module.Trainer.compile_from_config = compile_without_jit


class _TensorFlowWithoutXla:
    """The module `tensorflow`, except that `tf.function(jit_compile=True)` leaves a function as it is."""

    def __init__(self, tf: types.ModuleType) -> None:
        self._tf = tf

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tf, name)

    def function(self, *args: Any, **kwargs: Any) -> Any:
        """`tf.function`, or the identity."""
        if not args and kwargs == {"jit_compile": True}:
            return lambda function: function
        return self._tf.function(*args, **kwargs)


@functools.cache
def has_kernel(op: str) -> bool:
    """Whether the plug-in has a kernel for the op."""
    kernels = sys.modules["tensorflow.python.framework.kernels"].get_registered_kernels_for_op(op)
    return any(kernel.device_type == "WGPU" for kernel in kernels.kernel)


def patch_nn(module: types.ModuleType) -> None:
    """Keras 3: grouped and channels-first 3-D convolutions, which Keras compiles with XLA, run as plain ops."""
    with_xla = module.conv
    names = {**with_xla.__globals__, "tf": _TensorFlowWithoutXla(module.tf)}
    without_xla = types.FunctionType(
        with_xla.__code__, names, with_xla.__name__, with_xla.__defaults__, with_xla.__closure__
    )
    without_xla.__kwdefaults__ = with_xla.__kwdefaults__

    @functools.wraps(with_xla)
    def conv(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not runs_on_wgpu():
            return with_xla(inputs, *args, **kwargs)
        if len(inputs.shape) == 5 and not has_kernel("Conv3D"):
            with module.tf.device("CPU:0"):
                return with_xla(inputs, *args, **kwargs)
        return without_xla(inputs, *args, **kwargs)

    module.conv = conv


def patch_legacy_conv(module: types.ModuleType) -> None:
    """tf_keras: grouped convolutions run as plain ops. The rest of it knows that pluggable devices have no XLA."""
    with_xla = module.Conv._jit_compiled_convolution_op

    def convolution_op(self: Any, inputs: Any, kernel: Any) -> Any:
        if runs_on_wgpu():
            return self.convolution_op(inputs, kernel)
        # A tf.function is bound to its object by the descriptor protocol.
        return with_xla.__get__(self, type(self))(inputs, kernel)

    module.Conv._jit_compiled_convolution_op = convolution_op


def watch_fallbacks(module: types.ModuleType) -> None:
    """`TF_WGPU_FALLBACK`: float ops that run on the CPU are logged or refused, in this whole process."""
    del module
    from tensorflow_wgpu import _fallbacks

    if mode := _fallbacks.mode():
        _fallbacks.install(mode)


PATCHES: dict[str, Callable[[types.ModuleType], None]] = {
    "tensorflow.python.eager.context": watch_fallbacks,
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": patch_function,
    "keras.src.trainers.trainer": patch_trainer,
    "keras.src.backend.tensorflow.nn": patch_nn,
    "tf_keras.src.layers.convolutional.base_conv": patch_legacy_conv,
}


class _PostImport(importlib.abc.MetaPathFinder):
    """Runs a patch right after its module was imported."""

    def __init__(self, pending: dict[str, Callable[[types.ModuleType], None]]) -> None:
        self.pending = pending
        self.patch_imported()

    def patch_imported(self) -> None:
        """Patches modules whose import began before this finder was there, once it is finished."""
        for name in list(self.pending):
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                self.patch(module)

    def patch(self, module: types.ModuleType) -> None:
        """Patches a module, once. An unknown version of it is no reason to fail."""
        patch = self.pending.pop(module.__name__, None)
        if patch is None:
            return
        try:
            patch(module)
        except Exception as e:
            log.warning("%s is not as expected (%s: %s); %s", module.__name__, type(e).__name__, e, ADVICE)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Lets the other finders find the module, and hooks into its loader."""
        if not self.pending:
            return None
        self.patch_imported()
        if fullname not in self.pending or fullname in sys.modules:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None:
                break
        else:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            self.patch(module)

        spec.loader.exec_module = exec_module
        return spec


install()
