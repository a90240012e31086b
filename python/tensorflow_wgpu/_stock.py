"""Tells Keras's own layers and cells from those that programs derive or change."""

from __future__ import annotations

from typing import Any


class Stock:
    """A class of Keras, with its methods as they were when its module was imported."""

    #: The methods that decide about the results of a layer or a cell.
    METHODS = (
        "__call__",
        "call",
        "inner_loop",
        "get_initial_state",
        "get_dropout_mask",
        "get_dropout_mask_for_cell",
        "reset_dropout_mask",
    )

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.note()

    def note(self) -> None:
        """Takes the present methods for Keras's own."""
        self.methods = self._now()

    def _now(self) -> dict[str, Any]:
        return {
            name: next((vars(c)[name] for c in self.cls.__mro__ if name in vars(c)), None)
            for name in self.METHODS
        }

    def made(self, value: Any) -> bool:
        """Whether a value is of this class, and neither its methods nor the class's were
        replaced.
        """
        return (
            type(value) is self.cls
            and not self.methods.keys() & vars(value).keys()
            and all(now is self.methods[name] for name, now in self._now().items())
        )
