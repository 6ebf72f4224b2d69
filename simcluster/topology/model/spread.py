"""The spread of a measured number: its ratio to the median in each round of a calibration.

Entry i of every list belongs to the same round, so numbers that rise together also do so in a
replica of the topology (replicas.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Factors = tuple[float, ...]


@dataclass(frozen=True)
class Spread:
    """The spread of a node's or a link's numbers: *factors* has (key, one factor per round).

    A number without factors does not vary.
    """

    factors: tuple[tuple[str, Factors], ...] = ()

    def factor(self, key: str, number: int) -> float:
        return next((found[number] for name, found in self.factors if name == key), 1.0)

    @property
    def rounds(self) -> int:
        """The number of rounds; 0 without factors."""
        return len(self.factors[0][1]) if self.factors else 0


NONE = Spread()
"""The spread of a number that was not calibrated."""


def spread_block(measured: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return *measured* as a `spread` in a topology file, without the numbers that do not vary."""
    written = {key: [float(f"{factor:.5g}") for factor in factors] for key, factors in measured.items()}
    return {key: factors for key, factors in written.items() if any(factor != 1.0 for factor in factors)}
