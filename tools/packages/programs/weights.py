"""Random weights that are the same on every device: initializers draw, and round, on the device
that they run on.
"""

import numpy as np


def randomize(model, seed: int, spread: float | None = None) -> None:
    """Draws each weight of two or more dimensions, with the given spread or with one that keeps a
    layer's outputs as large as its inputs. Vectors keep their zeros and ones.
    """
    random = np.random.default_rng(seed)
    weights = model.get_weights()
    for i, weight in enumerate(weights):
        if weight.ndim > 1 and np.issubdtype(weight.dtype, np.floating):
            scale = spread or float(np.prod(weight.shape[:-1])) ** -0.5
            weights[i] = random.normal(0, scale, weight.shape).astype(weight.dtype)
    model.set_weights(weights)


class Snapshot:
    """The state of a compiled model, from which the runs of a program begin: making and tracing a
    model anew takes most of a small program's time.
    """

    def __init__(self, model):
        model.optimizer.build(model.trainable_variables)
        self.variables = [*model.variables, *model.optimizer.variables]
        self.values = [variable.numpy() for variable in self.variables]

    def restore(self) -> None:
        """Gives the variables the values that they had."""
        for variable, value in zip(self.variables, self.values):
            variable.assign(value)
