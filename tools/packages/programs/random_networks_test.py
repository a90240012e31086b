"""Random networks train for some steps: losses, predictions before and after, changes of the
weights.

`PACKAGES_NETWORKS` is how many networks there are; network n is the same in every run.
"""

import os

import numpy as np
import pytest
from networks import BATCH, network

COUNT = int(os.environ.get("PACKAGES_NETWORKS", "100"))
STEPS = 2


@pytest.mark.parametrize("seed", range(COUNT), ids=lambda seed: f"seed{seed:04}")
def test_network(values, seed):
    """A network's training is the CPU's, as far as its own sensitivity allows."""
    dtype = network(seed).dtype

    def program(disturb):
        made = network(seed)
        disturb(made.model)
        start = np.concatenate([w.value.numpy().ravel() for w in made.model.trainable_variables])
        before = made.model.predict(made.x, batch_size=BATCH, verbose=0)
        history = made.model.fit(
            made.x, made.y, batch_size=BATCH, epochs=STEPS, shuffle=False, verbose=0
        )
        end = np.concatenate([w.value.numpy().ravel() for w in made.model.trainable_variables])
        after = made.model.predict(made.x, batch_size=BATCH, verbose=0)
        return {
            "before": before.astype("float64"),
            "losses": np.asarray(history.history["loss"]),
            "updates": end - start,
            "after": after.astype("float64"),
        }

    values.compare(program, dtype)
