"""A server that waits at every step only for the first gradients, and cancels all other work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from simcluster.algorithms.parameter_server.barrier import Barrier
from simcluster.algorithms.parameter_server.server import SERVER, Push
from simcluster.algorithms.parameter_server.serving import PUSH, PushListener
from simcluster.errors import PeerLost
from simcluster.payload import Message
from simcluster.transport import Transport
from simcluster.workloads import Replica


class Race(Barrier):
    """A barrier at which a step's first gradients suffice; all other work, the server's included, is cancelled."""

    push = PUSH
    reply = "weights"

    def __init__(
        self, node: Transport, replica: Replica, group: asyncio.TaskGroup, *, trains: bool, loose: bool
    ) -> None:
        super().__init__(node, replica, group, trains=trains, loose=loose, pushed=0)
        self._group = group
        self._arrived: asyncio.Queue[Push | PeerLost] = asyncio.Queue()
        # A server that trains need not wait for a worker. A server that only serves must.
        self._listener = PushListener(node, lambda: bool(node.peers) or not trains, lambda: True)
        self._listening = group.create_task(self._listen())

    async def first(self, k: int, *, again: bool) -> list[Push]:
        """Wait for the first *k* gradients of this step, or for one from each rank if fewer ranks
        are left. Return the gradients in rank order.

        *again*: whether a rank that has pushed a gradient computes another one; if so, *k* may
        exceed the number of ranks and always applies.
        """
        own = self._group.create_task(self._train(again)) if self._trains else None
        first: list[Push] = []
        while len(first) < (k if again else min(k, len(self._left(first)))) or not first:
            self._listener.look()
            arrived = await self._arrived.get()
            if isinstance(arrived, PeerLost):
                self._replies.lost(arrived, enough=bool(self._left(first)))
            elif arrived["step"] == self.step:
                first.append(arrived)
            else:
                self._reject(arrived)
        if own is not None:
            own.cancel()
            self._replica.ledger.settle(self._replica.ledger.drawn, used=False)  # the batch that was in progress
        return sorted(first, key=lambda push: push.rank)

    async def see_off(self, *, only_behind: bool = False) -> None:
        self._listening.cancel()
        while not self._arrived.empty():
            self._count.rejected += isinstance(self._arrived.get_nowait(), Push)
        await super().see_off(only_behind=only_behind)

    def _counts(self, pushes: Sequence[Push]) -> dict[str, int]:
        return vars(self._count)

    async def _listen(self) -> None:
        """Put each push and each loss into the queue. If no worker is left, wait until `first`
        looks for workers.
        """
        while (arrived := await self._listener.next()) is not None:
            if isinstance(arrived, Message):
                self._arrived.put_nowait(Push(arrived, self._replica.ledger.receive(arrived)))
                continue
            self._arrived.put_nowait(arrived)
            if not self._node.peers:
                await self._listener.looked()

    async def _train(self, again: bool) -> None:
        """Run the server's own worker for one step."""
        for batch in self._batches:
            push = await self._gradient(batch)
            self._count.pushed += 1
            self._arrived.put_nowait(push)
            if not again:
                return

    def _left(self, first: Sequence[Push]) -> set[int]:
        """Return the ranks that have made one of the pushes *first* or can still push."""
        return {*self._node.peers, *(push.rank for push in first), *([SERVER] if self._trains else [])}

    def _done(self) -> int:
        return self._replica.ledger.drawn
