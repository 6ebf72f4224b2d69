"""What the handles of a world ask of a running cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from simcluster.fault_plans import kinds
    from simcluster.topology import Topology


class WorldStage(Protocol):
    """A cluster that worlds act on: each of their acts is a fault that it begins and ends."""

    topology: Topology
    seed: int

    def now_s(self) -> float:
        """Return the run's time."""

    def lives(self, rank: int) -> bool:
        """Return whether *rank* has neither ended nor been lost."""

    def gone(self, rank: int) -> str | None:
        """Return the reason for which *rank* is gone, ENDED if it has ended well, or None."""

    def steps(self, rank: int) -> int:
        """Return the last step that *rank* has recorded, as far as the cluster knows."""

    def sent(self) -> Iterator[tuple[str, str, int, Sequence[int]]]:
        """Yield (sender, receiver, bytes, bytes by route if known) of all messages so far."""

    def begin(self, fault: kinds.Fault) -> int:
        """Begin *fault* and return its number for `end`. Raise UsageError if this cluster cannot have
        it.
        """

    def end(self, number: int) -> None:
        """End a fault that `begin` has begun."""
