"""The models and phases that can be measured. It needs no TensorFlow: a wrong name is found before
a process has loaded TensorFlow.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model, with names for people."""

    #: Its name in sentences.
    title: str
    #: What its speed counts: `images` or `tokens`.
    unit: str


MODELS = {
    "resnet50": Entry("ResNet50", "images"),
    "mobilenet_v2": Entry("MobileNetV2", "images"),
    "efficientnet_b0": Entry("EfficientNetB0", "images"),
    "transformer": Entry("Transformer encoder", "tokens"),
    "lstm": Entry("LSTM", "tokens"),
}
PHASES = ("inference", "training")


def chosen(text: str | None, kind: str, known: Iterable[str]) -> list[str]:
    """The names in a comma-separated list; all names if there is no list.

    Raises ValueError for an unknown name, and suggests the nearest known one.
    """
    known = list(known)
    names = [name.strip() for name in (text or ",".join(known)).split(",") if name.strip()]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, 1)
            hint = f"; is it {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise ValueError(f"unknown {kind} {name!r}{hint}")
    return names
