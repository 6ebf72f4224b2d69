"""Scales and axes of figures, for pages that draw with plotly and pages that do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from simcluster.runs.folder import RunFolder

RECORDED = "consensus"
"""Name of the metric that algorithms record if they measure the consensus distance with messages."""

LOGARITHMIC_FROM = 20.0
"""Least ratio of the largest to the smallest number at which an axis is logarithmic."""

XAxis = Literal["time", "step", "bytes", "energy"]


def axes_of(runs: Sequence[RunFolder]) -> list[XAxis]:
    """Return the axes that all *runs* have.

    "energy" is one of them only if the power of every device is known.
    """
    known = all(run.summary.get("joules") is not None for run in runs)
    return [x for x in get_args(XAxis) if known or x != "energy"]


def time_scale(longest_s: float) -> tuple[float, str]:
    """Return (seconds per unit, unit) that make *longest_s* easy to read."""
    scales = ((1e-3, 1e-6, "us"), (1.0, 1e-3, "ms"), (600.0, 1.0, "s"), (4 * 3600.0, 60.0, "min"))
    return next(((unit_s, unit) for limit_s, unit_s, unit in scales if longest_s < limit_s), (3600.0, "h"))


def size_scale(largest_bytes: float) -> tuple[float, str]:
    """Return (bytes per unit, unit) that make *largest_bytes* easy to read."""
    return _scale(largest_bytes, "B")


def energy_scale(most_J: float) -> tuple[float, str]:
    """Return (joules per unit, unit) that make *most_J* easy to read."""
    return _scale(most_J, "J")


def _scale(most: float, unit: str) -> tuple[float, str]:
    prefixes = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    return next(((scale, prefix + unit) for scale, prefix in prefixes if most >= 2 * scale), (1.0, unit))


def is_wide(numbers: Sequence[float]) -> bool:
    """Return whether *numbers* span enough magnitudes for a logarithmic axis."""
    return bool(numbers) and min(numbers) > 0 and max(numbers) / min(numbers) >= LOGARITHMIC_FROM
