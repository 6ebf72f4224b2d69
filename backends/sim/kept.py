"""Takes checkpoints of simulated nodes: at once, in this process, and in no virtual time.

This file knows shards. It must not know nodes, clocks or files. It never yields, so a run with checkpoints has the
trace of one without.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from simcluster.checkpoints.keeping import Keeping
    from simcluster.checkpoints.shard import Shard

T = TypeVar("T")


class OffTheClock:
    """Hands in to *keeping*; *lost* has the ranks that have died until now."""

    def __init__(self, keeping: Keeping, lost: Container[int]) -> None:
        self._keeping, self._lost = keeping, lost

    async def hand_in(self, make: Callable[[], Shard]) -> None:
        self._keeping.add(make(), self._lost)

    async def aside(self, work: Callable[[], T]) -> T:
        return work()
