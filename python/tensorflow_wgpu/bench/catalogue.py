"""The models and phases that can be measured, without TensorFlow: a wrong name is known before a
process has loaded it.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Entry:
    """A model, as people call it."""

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
    """The names in a list with commas; all without one.

    Raises ValueError for a name that is not known, with the nearest one that is.
    """
    known = list(known)
    names = [name.strip() for name in (text or ",".join(known)).split(",") if name.strip()]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, 1)
            hint = f"; is it {near[0]}?" if near else f"; there are {', '.join(known)}"
            raise ValueError(f"unknown {kind} {name!r}{hint}")
    return names
