"""Two runs by unlike kernels: the differences of the kernels, and whether the results agree nevertheless.

Unlike kernels round differently, and training carries that on: such runs are judged by a tolerance, not by bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from simcluster.errors import UsageError

if TYPE_CHECKING:
    from simcluster.runs.folder import RunFolder

TOLERANCE: Final = 1e-3
"""Relative, in the Euclidean norm of all final weights. Rounding alone is near 1e-7 and grows with the steps."""

KEYS = ("torch", "blas", "cpu_capability")


class Unlike(NamedTuple):
    """Kernels of *node* in both runs."""

    node: str
    key: str
    a: str
    b: str


@dataclass(frozen=True)
class Judgement:
    """*found* lists differences of the kernels. *difference* is that of the weights; None if a run has none."""

    found: list[Unlike]
    difference: float | None

    @property
    def within(self) -> bool | None:
        return None if self.difference is None else self.difference <= TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        finite = self.difference is not None and self.difference < float("inf")
        return {
            "unlike": [one._asdict() for one in self.found],
            "tolerance": TOLERANCE,
            "difference": self.difference if finite else None,
            "within_tolerance": self.within,
        }


def unlike(a: RunFolder, b: RunFolder) -> list[Unlike]:
    """Return differences of kernels between nodes of one name; a run without kernels counts as alike."""
    found = []
    for name, node in a.summary["nodes"].items():
        one, other = node.get("numerics"), b.summary["nodes"].get(name, {}).get("numerics")
        if one and other:
            found += [Unlike(name, key, str(one.get(key)), str(other.get(key))) for key in KEYS]
    return [one for one in found if one.a != one.b]


def weights_difference(a: RunFolder, b: RunFolder) -> float | None:
    """Return the norm of the weights' difference over the norm of *a*'s weights; None if there is no such number."""
    try:
        ours, theirs = a.weights(), b.weights()
    except UsageError:
        return None
    if {name: one.shape for name, one in ours.items()} != {name: one.shape for name, one in theirs.items()}:
        return None
    apart = sum(float((ours[name].double() - theirs[name].double()).square().sum()) for name in ours)
    whole = sum(float(one.double().square().sum()) for one in ours.values())
    if apart != apart or whole != whole:  # NaN is within no tolerance
        return float("inf")
    return float((apart / whole) ** 0.5) if whole else (float("inf") if apart else 0.0)
