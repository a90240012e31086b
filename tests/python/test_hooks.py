"""The package's patches of TensorFlow and Keras: unknown versions of them stay as they are, other
backends too.
"""

import logging
import sys
import types

import pytest
import tensorflow as tf
from support import python
from tensorflow_wgpu import _hooks, _jit, _keras, _library, _placement


def module_of(**members) -> types.ModuleType:
    module = types.ModuleType("made_up")
    vars(module).update(members)
    return module


@pytest.mark.parametrize("patch", _hooks.PATCHES.values(), ids=_hooks.PATCHES)
def test_a_module_without_what_a_patch_expects_stays_as_it_is(patch, caplog):
    module = module_of(kept=1)
    before = dict(vars(module))
    _hooks.PostImport({"made_up": patch}).patch("made_up", module)
    assert vars(module) == before
    assert "made_up is not as tensorflow-wgpu expects" in caplog.text


def test_a_function_without_the_attribute_is_called():
    """A rename in TensorFlow must not break every tf.function."""

    class Function:
        def _call(self, x):
            return x + 1

        def _get_concrete_function_garbage_collected(self):
            return "concrete"

    class OptionalXlaContext:
        def __init__(self, is_compiled):
            self.is_compiled = is_compiled

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    module = module_of(Function=Function, OptionalXlaContext=OptionalXlaContext)
    _jit.patch_function(module)
    assert module.Function()._call(1) == 2
    assert module.Function()._get_concrete_function_garbage_collected() == "concrete"
    assert module.OptionalXlaContext(False).is_compiled is False
    assert not module.OptionalXlaContext(True).is_compiled, "this process runs on WGPU"


def test_without_an_answer_from_tensorflow_nothing_runs_on_wgpu(monkeypatch, caplog):
    assert _placement.runs_on()
    with tf.device("CPU:0"):
        assert not _placement.runs_on()
        assert _placement.runs_on("CPU")
    _placement._warn.cache_clear()
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "tensorflow.python.eager.context", types.ModuleType("renamed"))
        assert not _placement.runs_on()
        assert not _placement.has_wgpu()
    assert caplog.text.count("does not tell tensorflow-wgpu where it runs") == 1
    assert _placement.runs_on()


@pytest.mark.parametrize("name", ["Trainer", "BaseTrainer"])
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_keras_is_left_alone_on_other_backends(monkeypatch, name, backend):
    """A small version of Keras's module; Keras 3.16 renamed the class."""
    monkeypatch.setenv("TF_WGPU_JIT", "error")

    class Trainer:
        @property
        def jit_compile(self):
            return self._jit

        @jit_compile.setter
        def jit_compile(self, value):
            self._jit = value

        def compile_from_config(self, config):
            self.config = config

    module = module_of(model_supports_jit=lambda model: True)
    vars(module)[name] = Trainer
    module.backend = module_of(backend=lambda: backend)
    _keras.patch_trainer(module)
    model = Trainer()
    ours = backend == "tensorflow"
    assert module.model_supports_jit(model) != ours
    model.compile_from_config({"jit_compile": True})
    assert model.config["jit_compile"] == ("auto" if ours else True)
    if ours:
        with pytest.raises(ValueError, match="cannot be used with a WGPU device"):
            model.jit_compile = True
    else:
        model.jit_compile = True
        assert model.jit_compile


def test_a_package_that_cannot_be_imported_is_named(tmp_path):
    """The library says so and goes on."""
    (tmp_path / "tensorflow_wgpu").mkdir()
    (tmp_path / "tensorflow_wgpu" / "__init__.py").write_text(
        "raise ImportError('broken on purpose')\n"
    )
    ran = python(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import tensorflow as tf
        print(tf.config.list_physical_devices("WGPU"))
        with tf.device("WGPU:0"):
            print(tf.reduce_sum(tf.ones(4)).numpy())
        """
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "broken on purpose" in ran.stderr
    assert "the Python package tensorflow_wgpu cannot be imported" in ran.stderr
    assert ran.stdout.split()[-1] == "4.0"


def test_the_log_is_one_that_can_be_silenced():
    assert _jit.log is _hooks.log is _placement.log is logging.getLogger("tensorflow_wgpu")


def test_device_details_name_the_adapter():
    device = tf.config.list_physical_devices("WGPU")[0]
    details = tf.config.experimental.get_device_details(device)
    adapter = next(a for a in _library.report()["adapters"] if a["device"] == "WGPU:0")
    assert details["device_name"] == adapter["name"]
    assert details["vendor"] == adapter["vendor"]
    assert details["backend"] == adapter["backend"]
    assert details["driver"].startswith(adapter["driver"] or "")
    assert (adapter["driver_info"] or "") in details["driver"]
    cpu = tf.config.list_physical_devices("CPU")[0]
    assert "driver" not in tf.config.experimental.get_device_details(cpu)
    with pytest.raises(ValueError, match="PhysicalDevice"):
        tf.config.experimental.get_device_details("WGPU:0")


def test_device_details_are_tensorflows_own_where_the_library_does_not_know(caplog, monkeypatch):
    monkeypatch.setattr(_library, "devices", dict)
    device = tf.config.list_physical_devices("WGPU")[0]
    assert "driver" not in tf.config.experimental.get_device_details(device)
    assert "is not known (KeyError" in caplog.text
