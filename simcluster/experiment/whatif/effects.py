"""What each change came to: the goal with it against the goal without, seed by seed.

This file knows measured numbers. It must not know how they were measured. Both are of the same seed, so they meet the
same stragglers and batches; what differs between seeds is the uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from simcluster.experiment.whatif.perturb import Change

LEAST = 0.01
"""A smaller share of the goal is no effect that anybody would buy something for."""


@dataclass(frozen=True)
class Effect:
    """*change* made the goal *value*, on average over seeds. *relative* is the change as a share, negative if less,
    *lowest* and *highest* those of single seeds. All None if it was never had: *error* says why, or nothing if the run
    only did not get there. *staleness* is the mean.
    """

    change: Change
    value: float | None
    relative: float | None
    lowest: float | None
    highest: float | None
    staleness: float | None = None
    error: str | None = None

    @property
    def gain(self) -> float:
        """The share by which the goal is less; below zero if it is more, or never had."""
        return -self.relative if self.relative is not None else -1.0

    @property
    def is_certain(self) -> bool:
        """Whether every seed says the same: less, or more."""
        return self.lowest is not None and self.highest is not None and self.lowest * self.highest > 0

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
) -> Effect:
    """That of *change*: *base* and *changed* have the goal by seed. A seed that no longer gets there spoils it."""
    pairs = [(base[seed], changed.get(seed)) for seed in base]
    values = [after for _, after in pairs if after is not None]
    if len(values) < len(pairs):
        return Effect(change, None, None, None, None, staleness, error)
    shares = [after / before - 1 if before else 0.0 for before, after in zip(base.values(), values, strict=True)]
    return Effect(change, fmean(values), fmean(shares), min(shares), max(shares), staleness)


def ranked(effects: Sequence[Effect]) -> list[Effect]:
    """The greatest effect first, whichever way; those that were never had last."""
    return sorted(effects, key=lambda found: (found.relative is None, -abs(found.relative or 0.0), found.change.label))


def by_gain(effects: Sequence[Effect]) -> list[Effect]:
    """Those that gain anything worth it, the most first."""
    return sorted((e for e in effects if e.gain >= LEAST), key=lambda found: (-found.gain, found.change.label))


def by_price(effects: Sequence[Effect]) -> list[Effect]:
    """Purchases, most gain for a dollar first."""
    return sorted(effects, key=lambda found: (-(found.per_usd or 0.0), found.change.price_usd or 0.0))
