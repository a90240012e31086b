"""The fixture `values`, which compares a program's results on WGPU with the CPU's."""

import os
from pathlib import Path

import pytest
from values import Values


@pytest.fixture
def values(request):
    """The CPU's process writes the values of the case, WGPU's process compares with them."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    folder = Path(os.environ["PACKAGES_VALUES"])
    return Values(folder / f"{name}.npz", os.environ["PACKAGES_DEVICE"])
