"""Compiles a program's pipelines before they are needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tensorflow_wgpu._library import device_type, statistics


def warmup(fn_or_model: Callable, *inputs: Any, **keywords: Any) -> int:
    """Runs a program once for inputs of these shapes and types, so that later runs compile nothing,
    and returns the number of pipelines that were compiled for it.

    `fn_or_model` is

    - a Keras model: with one input its `predict` is prepared, with inputs and targets
      (`warmup(model, x, y)`, of a compiled model) its `fit`; both for batches of `len(x)`;
    - a `tf.function`, which is called with the arguments;
    - any other callable, which is called as it is.

    Variables of models and of `tf.function`s get their values back afterwards, the optimizer's
    among them. Random generators and what a plain callable changes stay changed. On adapters whose
    driver keeps compiled pipelines, later processes profit too.

    Raises what the program raises, and RuntimeError where TensorFlow sees no WGPU device.
    """
    import tensorflow as tf

    if not tf.config.list_logical_devices(device_type()):
        raise RuntimeError("TensorFlow sees no WGPU device; `python -m tensorflow_wgpu` says why")
    before = _pipelines()
    if hasattr(fn_or_model, "predict") and hasattr(fn_or_model, "fit"):
        _model(fn_or_model, *inputs, **keywords)
    elif hasattr(fn_or_model, "get_concrete_function"):
        concrete = fn_or_model.get_concrete_function(*inputs, **keywords)
        with kept(concrete.variables):
            wait(fn_or_model(*inputs, **keywords))
    else:
        wait(fn_or_model(*inputs, **keywords))
    return _pipelines() - before


def _model(model: Any, x: Any, y: Any = None, **keywords: Any) -> None:
    """One batch through `predict` or `fit`, whose functions later calls use again."""
    import tensorflow as tf

    keywords = {"batch_size": len(tf.nest.flatten(x)[0]), "verbose": 0, **keywords}
    if y is None:
        model.predict(x, **keywords)
        return
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise ValueError("warmup for fit: the model is not compiled; call model.compile first")
    if not getattr(optimizer, "built", True):
        optimizer.build(model.trainable_variables)
    metrics = getattr(model, "metrics_variables", [])
    with kept([*model.variables, *_variables(optimizer), *metrics]):
        model.fit(x, y, epochs=1, **keywords)


def _variables(optimizer: Any) -> list[Any]:
    """An optimizer's variables. Old optimizers return them from a call."""
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


@contextlib.contextmanager
def kept(variables: Any) -> Iterator[None]:
    """Gives the variables their values back afterwards."""
    unique = {id(variable): variable for variable in variables}
    kept = [(variable, variable.numpy()) for variable in unique.values()]
    try:
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)


def wait(result: Any) -> None:
    """Reads the tensors of a result, so that all of their work is done."""
    import tensorflow as tf

    for value in tf.nest.flatten(result):
        if hasattr(value, "numpy"):
            value.numpy()


def _pipelines() -> int:
    """The number of pipelines that all devices have compiled so far."""
    return sum(counts["pipelines"] for counts in statistics().values())
