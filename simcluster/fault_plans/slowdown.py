"""The time that work takes on a device whose speed changes in spells."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from simcluster.fault_plans.kinds import Spell

Factors = Sequence[tuple[Spell, float]]
"""(spell, factor) pairs: work takes *factor* times as long during the spell.

Factors of overlapping spells multiply, and an infinite factor stops all work.
"""


def stretched(factors: Factors, from_s: float, work_s: float) -> float:
    """Return the time that work takes under *factors* if it starts at *from_s* and normally takes
    *work_s*.

    It is infinite if the work never ends.
    """
    if not factors:
        return work_s
    at_s, left_s = from_s, work_s
    while True:
        factor, change_s = _factor_at(factors, at_s)
        if left_s * factor <= change_s - at_s:
            return (at_s - from_s) + left_s * factor
        if change_s == inf:
            return inf
        left_s -= (change_s - at_s) / factor
        at_s = change_s


def worked(factors: Factors, from_s: float, to_s: float) -> float:
    """Return the normal duration of the work that is done from *from_s* to *to_s* under *factors*."""
    done_s, at_s = 0.0, from_s
    while at_s < to_s:
        factor, change_s = _factor_at(factors, at_s)
        until_s = min(change_s, to_s)
        done_s += (until_s - at_s) / factor
        at_s = until_s
    return done_s


def _factor_at(factors: Factors, time_s: float) -> tuple[float, float]:
    """Return (the product of all factors at *time_s*, the time at which the product next
    changes).
    """
    product, change_s = 1.0, inf
    for (start_s, end_s), factor in factors:
        if start_s <= time_s < end_s:
            product *= factor
            change_s = min(change_s, end_s)
        elif start_s > time_s:
            change_s = min(change_s, start_s)
    return product, change_s
