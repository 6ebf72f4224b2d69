"""The effect of each change: the goal with it against the goal without, seed by seed.

Both runs have the same seed, so they meet the same stragglers and batches; differences between seeds are the
uncertainty. A calibrated topology adds that of its numbers: both run on the same replicas, which gives an effect an
interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from simcluster.experiment.interval import interval
from simcluster.lab.what_if.free import FREE
from simcluster.lab.what_if.perturb import Change

LEAST = 0.01
"""A smaller share of the goal is not worth a purchase."""


@dataclass(frozen=True)
class Effect:
    """The goal's *value* with *change*, averaged over seeds. *relative* is the change as a share, negative if the goal
    falls; *lowest* and *highest* are those of single seeds. All are None if the goal was not reached: *error* is the
    reason, empty if the run just did not get there. *staleness* is the mean. On a calibrated topology, the relative
    change lies between *low* and *high*, as far as the calibration can tell; both are None elsewhere.
    """

    change: Change
    value: float | None
    relative: float | None
    lowest: float | None
    highest: float | None
    staleness: float | None = None
    error: str | None = None
    low: float | None = None
    high: float | None = None

    @property
    def gain(self) -> float:
        """The share by which the goal falls; negative if it rises or was not reached."""
        return -self.relative if self.relative is not None else -1.0

    @property
    def is_certain(self) -> bool:
        """Whether all seeds agree on the sign, and the calibration confirms it."""
        agreed = self.lowest is not None and self.highest is not None and self.lowest * self.highest > 0
        return agreed and not self.is_within

    @property
    def is_within(self) -> bool:
        """Whether the effect is within the uncertainty of the calibration: it may be zero."""
        return self.low is not None and self.high is not None and self.low <= 0.0 <= self.high

    def overlaps(self, other: Effect) -> bool:
        """Whether the calibration cannot tell which of two effects is greater."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low <= other.high and other.low <= self.high

    @property
    def per_usd(self) -> float | None:
        """The gain per dollar, as a share; None unless this is a purchase."""
        return self.gain / self.change.price_usd if self.change.price_usd else None


def effect(
    change: Change,
    base: Mapping[int, float],
    changed: Mapping[int, float | None],
    staleness: float | None,
    error: str | None,
    replicas: Sequence[tuple[float, float]] = (),
) -> Effect:
    """Return the effect of *change*; *base* and *changed* map seeds to the goal. If one seed misses the goal, there is
    no value.

    *replicas* are the times without and with the change on each replica of a calibrated topology.
    """
    pairs = [(base[seed], changed.get(seed)) for seed in base]
    values = [after for _, after in pairs if after is not None]
    if len(values) < len(pairs):
        return Effect(change, None, None, None, None, staleness, error)
    shares = [after / before - 1 if before else 0.0 for before, after in zip(base.values(), values, strict=True)]
    found = Effect(change, fmean(values), fmean(shares), min(shares), max(shares), staleness)
    # Each replica is compared with itself, so common errors cancel.
    alike = [after / before - 1 for before, after in replicas if before]
    if len(alike) < 2:
        return found
    span = interval(alike)
    return replace(found, low=span["low"], high=span["high"])


def is_part(found: Effect) -> bool:
    """Return whether the change is one of a link or a device, not of a setting or of the work of nodes."""
    return found.change.kind not in ("setting", *FREE)


def ranked(effects: Sequence[Effect]) -> list[Effect]:
    """Sort by size of the effect, of either sign; then effects within the uncertainty; unreached goals last."""

    def place(found: Effect) -> tuple[bool, bool, float, str]:
        return found.relative is None, found.is_within, -abs(found.relative or 0.0), found.change.label

    return sorted(effects, key=place)


def by_gain(effects: Sequence[Effect]) -> list[Effect]:
    """Return the worthwhile gains, the largest first, without those within the uncertainty of the calibration."""
    worth = (e for e in effects if e.gain >= LEAST and not e.is_within)
    return sorted(worth, key=lambda found: (-found.gain, found.change.label))


def sufficient(effects: Sequence[Effect]) -> Effect:
    """Return the cheapest of the purchases that gain most, or less than that by no more than is worth a purchase."""
    most = max(found.gain for found in effects)
    enough = (found for found in effects if found.gain >= most - LEAST)
    return min(enough, key=lambda found: (found.change.price_usd or 0.0, -found.gain, found.change.label))


def by_price(effects: Sequence[Effect]) -> list[Effect]:
    """Return purchases by gain per dollar, the best first."""
    return sorted(effects, key=lambda found: (-(found.per_usd or 0.0), found.change.price_usd or 0.0))
