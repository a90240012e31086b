"""Draws rooflines with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow_wgpu import _rates
from tensorflow_wgpu._recording import DeviceProfile

#: Rows that get a name; the others are points only.
NAMED = 8


def draw(devices: Sequence[DeviceProfile]) -> Any:
    """The figure with a roofline for each device that has times and rates.

    Raises ImportError if matplotlib is missing, and ValueError if no device has them.
    """
    try:
        # Not pyplot, which sets a backend for the whole process: a notebook has its own.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install matplotlib") from error

    measured = [(device, _rates.of(device.device)) for device in devices]
    drawn = [(device, rates) for device, rates in measured if rates and device.busy]
    if not drawn:
        raise ValueError("no device has both times and rates: its adapter lacks timestamps")
    figure = Figure(figsize=(9, 5.5 * len(drawn)), layout="constrained")
    axes = figure.subplots(len(drawn), 1, squeeze=False)
    for axis, (device, rates) in zip(axes[:, 0], drawn):
        rows = [row for row in device.rows if row.flops and row.seconds and row.bytes]
        intensities = [row.flops / row.bytes for row in rows]
        low = min([0.05, *intensities]) / 2
        high = max([200.0, *intensities]) * 2
        ridge = rates.arithmetic / rates.bandwidth
        axis.loglog(
            [low, ridge, high],
            [low * rates.bandwidth / 1e9, rates.arithmetic / 1e9, rates.arithmetic / 1e9],
            color="black",
            label=f"{rates.bandwidth / 1e9:.0f} GB/s, {rates.arithmetic / 1e9:.0f} GFLOP/s",
        )
        for number, (row, intensity) in enumerate(zip(rows, intensities)):
            share = 100 * row.seconds / device.busy
            label = f"{row.name.split(' [')[0]} ({share:.0f} %)" if number < NAMED else None
            axis.scatter(intensity, row.flops / row.seconds / 1e9, s=20 + 8 * share, label=label)
        axis.set_xlabel("operations on floats for a byte")
        axis.set_ylabel("GFLOP/s")
        axis.set_title(f"{device.device}, {device.adapter}")
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.legend(fontsize="small", loc="lower right")
    return figure
