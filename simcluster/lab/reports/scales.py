"""Scales and axes that do not depend on how a figure is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder

RECORDED = "consensus"
"""The consensus distance in algorithms that measure it themselves, at the network's cost."""

LOGARITHMIC_FROM = 20.0
"""The largest over the smallest number from which an axis is logarithmic."""

XAxis = Literal["time", "step", "bytes", "energy"]


def axes_of(runs: Sequence[RunFolder]) -> list[XAxis]:
    """Return the axes that all *runs* have: energy only if the power of every device is known."""
    known = all(run.summary.get("joules") is not None for run in runs)
    return [x for x in get_args(XAxis) if known or x != "energy"]


def time_scale(longest_s: float) -> tuple[float, str]:
    """Return (seconds per unit, unit) that make *longest_s* easy to read."""
    scales = ((1e-3, 1e-6, "us"), (1.0, 1e-3, "ms"), (600.0, 1.0, "s"), (4 * 3600.0, 60.0, "min"))
    return next(((unit_s, unit) for limit_s, unit_s, unit in scales if longest_s < limit_s), (3600.0, "h"))


def size_scale(largest_bytes: float) -> tuple[float, str]:
    """Return (bytes per unit, unit) that make *largest_bytes* easy to read."""
    scales = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((scale for scale in scales if largest_bytes >= 2 * scale[0]), (1.0, "B"))


def energy_scale(most_J: float) -> tuple[float, str]:
    """Return (joules per unit, unit) that make *most_J* easy to read."""
    return next((scale for scale in ((1e6, "MJ"), (1e3, "kJ")) if most_J >= 2 * scale[0]), (1.0, "J"))


def is_wide(numbers: Sequence[float]) -> bool:
    """Whether *numbers* span enough magnitudes for a logarithmic axis."""
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) >= LOGARITHMIC_FROM
