"""Optimizer updates: all variables after two steps."""

import numpy as np
import tensorflow as tf

from .core import case
from .reference import changed

#: Inputs of the dense op in order.
DENSE = {
    "AdaMax": "var m v beta1_power lr beta1 beta2 epsilon grad",
    "Adadelta": "var accum accum_update lr rho epsilon grad",
    "Adagrad": "var accum lr grad",
    "AdagradV2": "var accum lr epsilon grad",
    "Adam": "var m v beta1_power beta2_power lr beta1 beta2 epsilon grad",
    "AdamWithAmsgrad": "var m v vhat beta1_power beta2_power lr beta1 beta2 epsilon grad",
    "AddSign": "var m lr alpha sign_decay beta grad",
    "CenteredRMSProp": "var mg ms mom lr rho momentum epsilon grad",
    "Ftrl": "var accum linear grad lr l1 l2 lr_power",
    "FtrlV2": "var accum linear grad lr l1 l2 l2_shrinkage lr_power",
    "GradientDescent": "var alpha delta",
    "KerasMomentum": "var accum lr grad momentum",
    "Momentum": "var accum lr grad momentum",
    "PowerSign": "var m lr logbase sign_decay beta grad",
    "ProximalAdagrad": "var accum lr l1 l2 grad",
    "RMSProp": "var ms mom lr rho momentum epsilon grad",
}
SPARSE = ("Adadelta", "Adagrad", "AdagradV2", "Ftrl", "FtrlV2", "KerasMomentum", "ProximalAdagrad")
#: Rules that reference variables lack.
RESOURCES_ONLY = ("AdamWithAmsgrad", "KerasMomentum")
VARIABLES = {"var", "m", "v", "vhat", "accum", "accum_update", "linear", "mg", "ms", "mom"}
POSITIVE = VARIABLES - {"var", "m", "mg", "linear", "mom"}
SCALARS = {
    "beta1_power": 0.9,
    "beta2_power": 0.95,
    "beta1": 0.9,
    "beta2": 0.95,
    "rho": 0.9,
    "momentum": 0.9,
    "beta": 0.9,
}
FLAGS = {
    "Adagrad": "update_slots",
    "AdagradV2": "update_slots",
    "Adam": "use_nesterov",
    "Ftrl": "multiply_linear_by_lr",
    "FtrlV2": "multiply_linear_by_lr",
    "KerasMomentum": "use_nesterov",
    "Momentum": "use_nesterov",
}
HALF = {"float16": (4e-3, 4e-3), "complex64": (1e-4, 1e-5)}


def update(t, rule, shape, indices=None, flag=True, lr_power=-0.5, l1=0.01):
    """A program that updates fresh variables twice and returns them."""
    given, scalars = {}, {}
    rows = shape if indices is None else (len(indices), *shape[1:])
    for name in DENSE[rule].split():
        if name in VARIABLES:
            given[name] = (
                t.uniform("T", shape, 0.5, 1.5)
                if name in POSITIVE
                else t.uniform("T", shape, -0.5, 0.5)
            )
        elif name in ("grad", "delta"):
            scalars[name] = t.uniform("T", rows, -1, 1)
        else:
            value = {**SCALARS, "lr_power": lr_power, "l1": l1, "lr": 0.125}.get(name, 0.1)
            scalars[name] = np.asarray(value, t.numpy("T"))
    attributes = {FLAGS[rule]: flag} if rule in FLAGS else {}
    if indices is not None:
        scalars["indices"] = np.asarray(indices, t.numpy("Tindices"))
    op = getattr(tf.raw_ops, t.op)

    def program():
        # The CPU rounds float16 after every operation, and lacks some kernels.
        wide = "CPU" in tf.constant(0.0).device and t["T"] == "float16"

        def tensor(value):
            return tf.constant(
                value.astype("float32") if wide and value.dtype == "float16" else value
            )

        if not t.op.startswith("Resource"):
            initial = {n: v.astype("float32") if wide else v for n, v in given.items()}

            def step(variables):
                inputs = {name: tensor(value) for name, value in scalars.items()}
                return op(**variables, **inputs, **attributes)

            return [tf.cast(v, t["T"]) for v in changed(initial, step, times=2)]
        variables = {name: tf.Variable(tensor(value)) for name, value in given.items()}
        inputs = {name: tensor(value) for name, value in scalars.items()}
        for _ in range(2):
            op(**{n: v.handle for n, v in variables.items()}, **inputs, **attributes)
        return [tf.cast(v.read_value(), t["T"]) for v in variables.values()]

    return t.program(program)


@case(
    *(f"ResourceApply{rule}" for rule in DENSE),
    *(f"Apply{rule}" for rule in DENSE if rule not in RESOURCES_ONLY),
    tol=HALF,
)
def dense(t):
    rule = t.op.removeprefix("Resource").removeprefix("Apply")
    yield update(t, rule, (3, 5))
    yield update(t, rule, (7,), flag=False)
    yield update(t, rule, ())
    yield update(t, rule, (0, 3))
    if "Ftrl" in rule:
        yield update(t, rule, (7,), flag=False, lr_power=-0.25)
    if "l1" in DENSE[rule].split():
        yield update(t, rule, (9,), l1=0.0)
        yield update(t, rule, (9,), l1=5.0)


@case(
    *(f"ResourceSparseApply{rule}" for rule in SPARSE),
    *(f"SparseApply{rule}" for rule in SPARSE if rule not in RESOURCES_ONLY),
    tol=HALF,
)
def sparse(t):
    rule = t.op.removeprefix("Resource").removeprefix("SparseApply")
    yield update(t, rule, (5, 3), [4, 0, 2])
    yield update(t, rule, (4, 3), [1, 3, 1, 1, 0, 3], flag=False)
    yield update(t, rule, (4, 2, 3), [2, 2])
    yield update(t, rule, (4,), [3, 1])
    yield update(t, rule, (4, 3), [])
