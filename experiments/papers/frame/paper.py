"""A result of a paper: what is claimed, in which setting it is tried here, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from experiments.papers.frame.lab import Lab

Verdict = Literal["reproduced", "partly", "not reproduced"]


@dataclass(frozen=True)
class Check:
    """One statement of the expected shape: its *name*, what is *expected*, what *ours* is, and whether that *holds*."""

    name: str
    expected: str
    ours: str
    holds: bool


@dataclass(frozen=True)
class Paper:
    """A result of a paper, and how it is measured here.

    - *title*: a few words: what it is about.
    - *citation*: authors, year, title, section.
    - *claim*: what the paper says, in our own words; the site shows it.
    - *setting*: what runs here, and why it stands for the paper's.
    - *expected*: the shape that the results should have.
    - *measure*: runs it in a `Lab`, briefly unless `lab.full`, and returns a `Check` for each part of the shape.
    - *missed*: name of a check -> why it does not hold here. All others must; these must not.
    """

    title: str
    citation: str
    claim: str
    setting: str
    expected: str
    measure: Callable[[Lab], Sequence[Check]]
    missed: Mapping[str, str] = field(default_factory=dict)

    def surprises(self, checks: Sequence[Check]) -> list[str]:
        """What differs from what this file says of it; nothing if all is as it should be."""
        found = [f"{one.name}: expected {one.expected}, ours {one.ours}" for one in checks if self._surprising(one)]
        return found if checks else ["nothing was measured"]

    def _surprising(self, check: Check) -> bool:
        return check.holds is (check.name in self.missed)


def verdict_of(checks: Sequence[Check]) -> Verdict:
    """All hold, some do, none does."""
    holding = sum(check.holds for check in checks)
    return "not reproduced" if not holding else "reproduced" if holding == len(checks) else "partly"


def agrees(name: str, ours: float, expected: float, within: float, unit: str = "") -> Check:
    """*ours* is *expected*, give or take *within*."""
    words = f"{expected:.4g}{unit} ± {within:.2g}" if within else f"{expected:.4g}{unit}"
    return Check(name, words, f"{ours:.4g}{unit}", bool(abs(ours - expected) <= within))


def exceeds(name: str, more: float, less: float, unit: str = "", *, times: float = 1.0) -> Check:
    """*more* is above *less*, *times* as much at least."""
    factor = f"{times:g} times " if times != 1.0 else ""
    return Check(name, f"more than {factor}{less:.4g}{unit}", f"{more:.4g}{unit}", bool(more > times * less))
