"""The clocks of stale-synchronous parallel: one per rank, with a bound on their difference."""

from __future__ import annotations

from collections.abc import Sequence

from simcluster.algorithms.parameter_server.push import Push
from simcluster.algorithms.parameter_server.server import SERVER
from simcluster.algorithms.parameter_server.serving import Listener
from simcluster.errors import PeerLost
from simcluster.transport import Transport
from simcluster.workloads import Replica


class Clocks(Listener):
    """Counts of the pushes of each of *ranks* that has any left. A rank waits to read while its clock is more than
    *bound* ahead of the slowest; None is no bound.
    """

    def __init__(self, node: Transport, replica: Replica, ranks: Sequence[int], bound: int | None) -> None:
        super().__init__(node, self._may_come)
        done = {rank: replica.done_by(rank) for rank in ranks}
        there = (SERVER, *node.peers)
        self._clock = {rank: done[rank] for rank in ranks if rank in there and done[rank] < replica.steps}
        self._through = {rank for rank in ranks if done[rank] >= replica.steps}
        self._waiting: dict[int, Push] = {}  # to read, since these pushes
        self._bound = bound

    def tick(self, push: Push) -> int:
        """Count *push*, after which its rank waits to read. Return the fastest rank's lead over the slowest.

        A rank that joins late or rejoins starts at the slowest rank's clock.
        """
        self._clock[push.rank] = self._clock.get(push.rank, self._slowest()) + 1
        self._waiting[push.rank] = push
        return max(self._clock.values()) - self._slowest()

    def free(self) -> list[Push]:
        """Return the pushes, by rank, of the waiting ranks that are within the bound."""
        slowest = self._slowest()
        waiting = [self._waiting[rank] for rank in sorted(self._waiting)]
        return [push for push in waiting if self._bound is None or self._clock[push.rank] - slowest <= self._bound]

    def go_on(self, push: Push) -> None:
        """Let the rank of *push* read; after its last push it has ended."""
        del self._waiting[push.rank]
        if push["last"]:
            del self._clock[push.rank]
            self._through.add(push.rank)

    def lost(self, loss: PeerLost) -> None:
        """Drop the clocks of the lost rank, which may have rejoined already, and of all absent ones."""
        self._through.discard(loss.rank)
        for rank in [rank for rank in self._clock if rank == loss.rank or rank not in (SERVER, *self._node.peers)]:
            del self._clock[rank]
            self._waiting.pop(rank, None)

    def _slowest(self) -> int:
        return min(self._clock.values(), default=0)

    def _may_come(self) -> bool:
        """Return whether any worker has a push left."""
        return any(rank != SERVER for rank in self._clock) or any(
            rank not in self._through for rank in self._node.peers
        )
