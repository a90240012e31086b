"""Random weights that are the same on every device: initializers draw on the device that they run
on, and round there.
"""

import numpy as np


def randomize(model, seed: int, spread: float | None = None) -> None:
    """Draws each weight of two or more dimensions, of the given spread or of one that keeps a
    layer's outputs as large as its inputs. Vectors keep their zeros and ones.
    """
    random = np.random.default_rng(seed)
    weights = model.get_weights()
    for i, weight in enumerate(weights):
        if weight.ndim > 1 and np.issubdtype(weight.dtype, np.floating):
            scale = spread or float(np.prod(weight.shape[:-1])) ** -0.5
            weights[i] = random.normal(0, scale, weight.shape).astype(weight.dtype)
    model.set_weights(weights)
