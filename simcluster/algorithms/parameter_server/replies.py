"""Replies that are sent while the server continues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from torch import Tensor

from simcluster.errors import PeerLost
from simcluster.payload import Payload, pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


class Replies:
    """Replies under *tag*, sent in the background, so a slow link delays only its own worker.

    Each names the *step* at which its receiver is to work.
    """

    def __init__(self, node: Transport, group: asyncio.TaskGroup, tag: str) -> None:
        self._node, self._group, self._tag = node, group, tag
        self._told: dict[int, int] = {}
        self._under_way: dict[int, asyncio.Task[None]] = {}

    def send(self, worker: int, step: int, weights: Sequence[Tensor]) -> None:
        self._told[worker] = step
        self._under_way[worker] = self._group.create_task(self._send(worker, pack(*weights, step=step)))

    def newer_than(self, step: int, worker: int) -> bool:
        """Return whether *worker*, which pushed at *step*, has been sent a later one."""
        return self._told.get(worker, 0) > step

    def under_way_to(self, worker: int) -> bool:
        """Return whether the last reply to *worker* has not left yet: another one would only queue behind it."""
        return worker in self._under_way and not self._under_way[worker].done()

    def lost(self, loss: PeerLost, *, enough: bool = True) -> None:
        """Forget a lost worker: after rejoining it starts afresh. Raise *loss* if not *enough* are left."""
        self._told.pop(loss.rank, None)
        if not enough:
            raise loss

    async def _send(self, worker: int, content: Payload) -> None:
        """Send, ignoring a loss that the server's recv will report: the worker may rejoin and push before that."""
        try:
            await self._node.send(worker, self._tag, content)
        except PeerLost:
            self._told.pop(worker, None)

    async def see_off(self, tag: str, replica: Replica, *, only_behind: bool = False) -> int:
        """After the last step, receive and count what workers still push until they end; it is too late.

        Send the final weights to workers that have not been told the end. *only_behind*: no other worker can push.
        """
        late = 0
        for worker in range(1, self._node.size):
            try:
                while not (only_behind and self.newer_than(replica.steps, worker)):
                    push = await self._node.recv(worker, tag)
                    replica.ledger.receive(push)
                    late += 1
                    if not self.newer_than(push["step"], worker):
                        self.send(worker, replica.steps + 1, replica.snapshot())
            except PeerLost as lost:
                self.lost(lost)
        return late
