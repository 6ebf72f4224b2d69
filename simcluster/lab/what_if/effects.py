"""Compute the effect of each change: the goal with the change compared to that without, by seed.

Both runs have the same seed, so they have the same stragglers and batches; differences between
seeds are the uncertainty. A calibrated topology adds the uncertainty of its numbers: both runs are
timed on the same resampled topologies, which gives each effect an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from simcluster.experiment.interval import interval
from simcluster.lab.what_if.free import FREE
from simcluster.lab.what_if.perturb import Change

LEAST = 0.01
"""Limit, as a share of the goal, below which a gain is not worth a purchase."""


@dataclass(frozen=True)
class Effect:
    """The goal's *value* with *change*, averaged over seeds.

    *relative* is the difference to the unchanged goal as a share, negative if the goal falls;
    *lowest* and *highest* are its extremes over seeds. *value* and these three are None if a run
    missed the goal; *error* is the reason if that run failed. *staleness* is the mean staleness. On
    a calibrated topology, *low* and *high* bound *relative* with the uncertainty of the
    calibration; both are None elsewhere.
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
        """The share by which the goal falls: negative if it rises, -1 if it was not reached."""
        return -self.relative if self.relative is not None else -1.0

    @property
    def is_certain(self) -> bool:
        """Whether all seeds agree on the sign, and the calibration leaves no doubt about it."""
        agreed = self.lowest is not None and self.highest is not None and self.lowest * self.highest > 0
        return agreed and not self.is_within

    @property
    def is_within(self) -> bool:
        """Whether the effect may be zero, given the uncertainty of the calibration."""
        return self.low is not None and self.high is not None and self.low <= 0.0 <= self.high

    def overlaps(self, other: Effect) -> bool:
        """Return whether the calibration leaves open which of the two effects is greater."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low <= other.high and other.low <= self.high

    @property
    def per_usd(self) -> float | None:
        """The gain per dollar, as a share; None unless the change is a purchase."""
        return self.gain / self.change.price_usd if self.change.price_usd else None


def effect(
    change: Change,
    base: Mapping[int, float],
    changed: Mapping[int, float | None],
    staleness: float | None,
    error: str | None,
    replicas: Sequence[tuple[float, float]] = (),
) -> Effect:
    """Return the effect of *change*.

    *base* and *changed* map seeds to the goal's value. If one seed misses the goal, the effect has
    no value: the mean of the others would be too good. *replicas* are the times (without the
    change, with it) on each resampled topology.
    """
    pairs = [(base[seed], changed.get(seed)) for seed in base]
    values = [after for _, after in pairs if after is not None]
    if len(values) < len(pairs):
        return Effect(change, None, None, None, None, staleness, error)
    shares = [after / before - 1 if before else 0.0 for before, after in zip(base.values(), values, strict=True)]
    found = Effect(change, fmean(values), fmean(shares), min(shares), max(shares), staleness)
    # Compare each resampled topology with itself, so that common errors cancel out.
    alike = [after / before - 1 for before, after in replicas if before]
    if len(alike) < 2:
        return found
    span = interval(alike)
    return replace(found, low=span["low"], high=span["high"])


def is_part(found: Effect) -> bool:
    """Return whether the change is to a link or a device, not to a setting or to shares of work."""
    return found.change.kind not in ("setting", *FREE)


def ranked(effects: Sequence[Effect]) -> list[Effect]:
    """Sort effects by absolute size; uncertain effects come next, and missed goals last."""

    def place(found: Effect) -> tuple[bool, bool, float, str]:
        return found.relative is None, found.is_within, -abs(found.relative or 0.0), found.change.label

    return sorted(effects, key=place)


def by_gain(effects: Sequence[Effect]) -> list[Effect]:
    """Return the effects with a certain gain of at least LEAST, the largest gain first."""
    worth = (e for e in effects if e.gain >= LEAST and not e.is_within)
    return sorted(worth, key=lambda found: (-found.gain, found.change.label))


def sufficient(effects: Sequence[Effect]) -> Effect:
    """Return the cheapest purchase whose gain is at most LEAST below the largest gain."""
    most = max(found.gain for found in effects)
    enough = (found for found in effects if found.gain >= most - LEAST)
    return min(enough, key=lambda found: (found.change.price_usd or 0.0, -found.gain, found.change.label))


def by_price(effects: Sequence[Effect]) -> list[Effect]:
    """Return purchases by gain per dollar, the best first."""
    return sorted(effects, key=lambda found: (-(found.per_usd or 0.0), found.change.price_usd or 0.0))
