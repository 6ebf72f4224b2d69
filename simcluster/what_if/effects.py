"""What each change came to: the goal with it against the goal without, seed by seed.

Both are of the same seed, so they meet the same stragglers and batches; what differs between seeds is the uncertainty.
On a calibrated topology there is a second one, that of its numbers: both ran on the same replicas, and an effect has an
interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from simcluster.experiment.interval import interval
from simcluster.what_if.perturb import Change

LEAST = 0.01
"""A smaller share of the goal is no effect that anybody would buy something for."""


@dataclass(frozen=True)
class Effect:
    """*change* made the goal *value*, on average over seeds. *relative* is the change as a share, negative if less,
    *lowest* and *highest* those of single seeds. All None if it was never had: *error* says why, or nothing if the run
    only did not get there. *staleness* is the mean. On a calibrated topology, the change as a share lies from *low* to
    *high*, as far as the calibration can tell; both None elsewhere.
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
        """The share by which the goal is less; below zero if it is more, or never had."""
        return -self.relative if self.relative is not None else -1.0

    @property
    def is_certain(self) -> bool:
        """Whether every seed says the same, less or more, and the calibration is sure of it."""
        agreed = self.lowest is not None and self.highest is not None and self.lowest * self.highest > 0
        return agreed and not self.is_within

    @property
    def is_within(self) -> bool:
        """Whether the effect is within the uncertainty of the calibration: it may as well be none."""
        return self.low is not None and self.high is not None and self.low <= 0.0 <= self.high

    def overlaps(self, other: Effect) -> bool:
        """Whether the calibration cannot tell which of two effects is the greater one."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return False
        return self.low <= other.high and other.low <= self.high

    @property
    def per_usd(self) -> float | None:
        """Of a purchase, the gain as a share for each dollar."""
        return self.gain / self.change.price_usd if self.change.price_usd else None


def effect(
    change: Change,
    base: Mapping[int, float],
    changed: Mapping[int, float | None],
    staleness: float | None,
    error: str | None,
    replicas: Sequence[tuple[float, float]] = (),
) -> Effect:
    """That of *change*: *base* and *changed* have the goal by seed. A seed that no longer gets there spoils it.

    *replicas* are the times without and with it on each replica of a calibrated topology.
    """
    pairs = [(base[seed], changed.get(seed)) for seed in base]
    values = [after for _, after in pairs if after is not None]
    if len(values) < len(pairs):
        return Effect(change, None, None, None, None, staleness, error)
    shares = [after / before - 1 if before else 0.0 for before, after in zip(base.values(), values, strict=True)]
    low, high = _interval(replicas)
    return Effect(change, fmean(values), fmean(shares), min(shares), max(shares), staleness, low=low, high=high)


def _interval(replicas: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
    """Between which shares the change lies: of each replica against itself, so what both have in common cancels."""
    shares = [after / before - 1 for before, after in replicas if before]
    if len(shares) < 2:
        return None, None
    found = interval(shares)
    return found["low"], found["high"]


def ranked(effects: Sequence[Effect]) -> list[Effect]:
    """The greatest effect first, whichever way; then those within the uncertainty; those that were never had last."""

    def place(found: Effect) -> tuple[bool, bool, float, str]:
        return found.relative is None, found.is_within, -abs(found.relative or 0.0), found.change.label

    return sorted(effects, key=place)


def by_gain(effects: Sequence[Effect]) -> list[Effect]:
    """Those that gain anything worth it, the most first; none that is within the uncertainty of the calibration."""
    return sorted(
        (e for e in effects if e.gain >= LEAST and not e.is_within), key=lambda found: (-found.gain, found.change.label)
    )


def by_price(effects: Sequence[Effect]) -> list[Effect]:
    """Purchases, most gain for a dollar first."""
    return sorted(effects, key=lambda found: (-(found.per_usd or 0.0), found.change.price_usd or 0.0))
