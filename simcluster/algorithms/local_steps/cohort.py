"""A cohort: the few ranks that a server calls to train at a time, while all others rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator

from simcluster.algorithms.local_steps.own_rounds import train_and_push
from simcluster.algorithms.local_steps.rounds import adopt
from simcluster.algorithms.parameter_server.server import SERVER, Push
from simcluster.algorithms.parameter_server.serving import PUSH, PushListener
from simcluster.algorithms.steps import resumable, rounds
from simcluster.algorithms.timed import timed
from simcluster.compression import Codec
from simcluster.errors import ENDED, PeerLost
from simcluster.overlays.hearing import heard
from simcluster.payload import Message, pack
from simcluster.transport import Transport
from simcluster.workloads import Replica

CALL = "call"

TRIES = 8
"""The number of draws among all ranks before the resting ranks are listed. While few ranks are
called, the first rank drawn is nearly always resting.
"""


class Cohort(PushListener):
    """The stream of pushes from called ranks. *places* is the number of slots, so at most that many
    ranks are called at a time. Each slot makes as many calls as a rank has rounds.

    *answered*: the number of calls that were answered before the run resumed.
    """

    def __init__(self, node: Transport, replica: Replica, places: int, interval: int, answered: int = 0) -> None:
        super().__init__(node, lambda: self.trains)
        self._replica, self._interval = replica, interval
        self._places = min(places, node.size - 1)
        self._each = -(-replica.steps // interval)
        self._to_call = self._places * self._each - answered
        self._called: dict[int, None] = {}
        self._lost: dict[int, int] = {}  # lost rank -> its last lost incarnation
        self._done: dict[int, int] = {}  # rank that has trained -> its number of finished rounds

    @property
    def trains(self) -> bool:
        """Whether any called rank has not pushed yet."""
        return bool(self._called)

    def draw(self) -> list[int]:
        """Return the ranks to call now: for each free slot, one resting rank that has a round
        left.
        """
        drawn: list[int] = []
        while len(self._called) < self._places and self._to_call:
            rank = self._one()
            if rank is None:
                break
            self._called[rank] = None
            self._to_call -= 1
            drawn.append(rank)
        return drawn

    def came(self, push: Push) -> None:
        if push.rank != SERVER:
            self._called.pop(push.rank, None)
            self._done[push.rank] = self._rounds_of(push.rank) + 1
            self.is_through = not self._to_call and not self._called

    def lost(self, loss: PeerLost) -> None:
        """Free the slot of a lost rank, so that another rank takes over its round."""
        if loss.rank in self._called and loss.incarnation > self._lost.get(loss.rank, -1):
            del self._called[loss.rank]
            self._to_call += 1
        self._lost[loss.rank] = loss.incarnation

    def gone(self, loss: PeerLost) -> None:
        """Handle a failed call.

        The rank may rejoin and be called again before a receive raises its loss, if any does.
        """
        self.lost(loss)

    def _one(self) -> int | None:
        size, random = self._node.size, self._node.rng.numpy
        for _ in range(TRIES):
            if self._rests(rank := 1 + int(random.integers(size - 1))):
                return rank
        resting = [rank for rank in self._node.peers if self._rests(rank)]
        return resting[int(random.integers(len(resting)))] if resting else None

    def _rests(self, rank: int) -> bool:
        """Return whether *rank* is present, has a round left, and has no call to answer."""
        if rank in self._called or self._rounds_of(rank) >= self._each:
            return False
        peers = self._node.peers
        place = bisect_left(peers, rank)
        return place < len(peers) and peers[place] == rank

    def _rounds_of(self, rank: int) -> int:
        return self._done.get(rank, -(-self._replica.done_by(rank) // self._interval))


async def calls(node: Transport, replica: Replica) -> AsyncIterator[Message]:
    """Yield the server's calls until the server ends. A rank that joins late or rejoins reports to
    the server first.
    """
    is_late = replica.ledger.incarnation > 0
    if is_late and isinstance(lost := await heard(node, SERVER), PeerLost):
        raise lost  # even if the server has ended: this rank has missed the run
    try:
        if is_late:
            await node.send(SERVER, PUSH, pack())
        while True:
            yield await node.recv(SERVER, CALL)
    except PeerLost as lost:
        if lost.reason != ENDED:
            raise


async def work_when_called(node: Transport, replica: Replica, interval: int, codec: Codec) -> None:
    """Run a worker of a cohort: train for one round per call, and push."""
    training = rounds(replica, interval, keep=resumable(replica, codec=codec), loose=True)
    async for call in calls(node, replica):
        # Phase 3, pull: the current weights, which come with the call and so before a round.
        await timed(node, adopt, replica.parameters, call.tensor)
        done, batches = await anext(training)
        await train_and_push(node, replica, interval, done, batches, call.tensor, call["version"], codec)
        del call
        replica.drop_weights()  # a resting rank needs none: the next call brings the current ones
