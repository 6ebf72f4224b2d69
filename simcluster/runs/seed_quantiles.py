"""State a measure of many seeds as the value that most of them keep, which a mean would hide."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

LEAST_SEEDS = 10
"""Fewer seeds have no run beyond the quantile."""

SHARE = 0.9
SAID = f"in {SHARE * 100:.0f} %"


def kept_by_most(values: Sequence[float]) -> float | None:
    """Return the least value that SHARE of *values* do not exceed; None for fewer than LEAST_SEEDS."""
    return sorted(values)[ceil(SHARE * len(values)) - 1] if len(values) >= LEAST_SEEDS else None
