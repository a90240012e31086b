"""Random networks train for some steps: losses, predictions before and after, changes of the
weights.

`PACKAGES_NETWORKS` is the number of networks; network n is the same in every run.
"""

import os

import numpy as np
import pytest
from networks import BATCH, network
from weights import Snapshot

COUNT = int(os.environ.get("PACKAGES_NETWORKS", "100"))
EPOCHS = 2


@pytest.mark.parametrize("seed", range(COUNT), ids=lambda seed: f"seed{seed:04}")
def test_network(values, seed):
    """A network's training gives the CPU's results, as far as its own sensitivity allows."""
    model, x, y, dtype = network(seed)
    snapshot = Snapshot(model)

    def weights():
        return np.concatenate([w.numpy().ravel() for w in model.trainable_variables])

    def program(disturb):
        snapshot.restore()
        disturb(model)
        start = weights()
        before = model.predict(x, batch_size=BATCH, verbose=0)
        history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
        return {
            "before": before.astype("float64"),
            "losses": np.asarray(history.history["loss"]),
            "updates": weights() - start,
            "after": model.predict(x, batch_size=BATCH, verbose=0).astype("float64"),
        }

    values.compare(program, dtype)
