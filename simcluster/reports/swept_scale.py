"""The axis of a swept setting: numbers on a straight or logarithmic one, quantities in one unit, words side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simcluster import units
from simcluster.reports.figure_style import is_wide

MAX_TICKS = 8
"""Up to so many values have a tick each; of more, an axis has the usual ones."""


@dataclass(frozen=True)
class SweptScale:
    """*places* are where each value stands on an axis called *title*, in *unit*; numbers unless *is_category*."""

    title: str
    places: list[Any]
    is_category: bool
    is_logarithmic: bool
    unit: str = ""

    def say(self, place: Any) -> str:
        """'137 Mbps': a place, which may lie between values, for people."""
        return str(place) if self.is_category else f"{float(f'{place:.3g}'):g} {self.unit}".rstrip()

    @property
    def axis(self) -> dict[str, Any]:
        """The layout of a plotly axis."""
        kind = "category" if self.is_category else "log" if self.is_logarithmic else "linear"
        ticks = {} if self.is_category or len(self.places) > MAX_TICKS else {"tickvals": self.places}
        return {"title": {"text": self.title}, "type": kind, **ticks}


_UNITS: tuple[tuple[Callable[[object], float], float, str], ...] = (
    (units.parse_bandwidth, 1e6 / 8, "Mbps"),
    (units.parse_latency, 1e-3, "ms"),
    (units.parse_size, 1e6, "MB"),
    (units.parse_rate, 1e9, "GFLOP/s"),
    (units.parse_power, 1.0, "W"),
    (units.parse_price, 1.0, "USD/h"),
)


def swept_scale(key: str, values: Sequence[Any]) -> SweptScale:
    """The scale of the *values* of the setting *key*, in their order."""
    numbers, unit = _numbers(values)
    if numbers is None:
        return SweptScale(key, [str(value) for value in values], True, False)
    return SweptScale(f"{key} ({unit})" if unit else key, numbers, False, is_wide(numbers), unit)


def _numbers(values: Sequence[Any]) -> tuple[list[float] | None, str]:
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values], ""
    for parse, scale, unit in _UNITS:
        try:
            return [parse(value) / scale for value in values], unit
        except units.UnitError:
            continue
    return None, ""
