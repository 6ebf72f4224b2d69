"""The two sides of pairwise averaging: ranks that ask a random partner, and ranks that answer all of theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from torch import Tensor

from simcluster.algorithms.parameter_server.serving import PushListener
from simcluster.errors import ENDED, PeerLost
from simcluster.overlays import Neighbourhood, Overlay
from simcluster.overlays.hearing import arrival
from simcluster.payload import Message, pack
from simcluster.transport import Transport
from simcluster.workloads import Replica


class Partners(Neighbourhood):
    """The neighbours on the other side, which this rank *asks* for averages or answers. A lost one may rejoin."""

    def __init__(self, node: Transport, graph: Overlay) -> None:
        super().__init__(node, graph)
        asking = graph.asking
        self.asks = node.rank in asking
        self.ranks = [rank for rank in graph.neighbours(node.rank) if (rank in asking) != self.asks]
        self._heard: set[int] = set()

    async def ask(self, x: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the mean of *x* and the weights of a random living partner; None if there is none.

        A lost rank is asked once more, which raises its loss; only then is a rejoined one accepted.
        """
        node = self.node
        while living := [rank for rank in self.ranks if rank not in self._heard or rank in node.peers]:
            partner = living[int(node.rng.numpy.integers(len(living)))]
            try:
                await node.send(partner, "average", pack(*x))
                mean = list((await node.recv(partner, "mean")).tensors)
                self._heard.discard(partner)
                return mean
            except PeerLost as lost:
                self.gone[partner] = lost
                self._heard.add(partner)
        self._check_not_left_behind(self.ranks)
        return None

    async def ended(self) -> None:
        """Return when every partner has ended, or has said so, or is lost for good."""
        waiting = self.ranks
        while waiting:
            lost = []
            for rank in waiting:
                found = await arrival(self.node, rank, "end")
                if isinstance(found, PeerLost):
                    self.gone[rank] = found
                    lost += [rank] if found.reason != ENDED else []
            waiting = [rank for rank in lost if rank in self.node.peers]  # they have rejoined

    async def say_end(self) -> None:
        """Tell the partners that this rank, if it asks, has ended its training, though not the algorithm."""
        async with asyncio.TaskGroup() as group:
            for partner in self.ranks if self.asks else ():
                group.create_task(self.send(partner, "end"))

    async def send(self, to: int, tag: str, x: Sequence[Tensor] = ()) -> None:
        """Send *x*; a loss is noticed where the partner is received from."""
        with suppress(PeerLost):
            await self.node.send(to, tag, pack(*x))


class Requests(PushListener):
    """The requests of *partners*; ranks that rejoin are looked for after each step."""

    def __init__(self, partners: Partners, replica: Replica) -> None:
        self._partners = partners
        super().__init__(partners.node, lambda: bool(partners.node.peers), tag="average")
        # No partner need ever have drawn a rank that began with the run: only one that came later can be too late.
        self._heard = replica.ledger.incarnation == 0

    async def next_request(self) -> Message | None:
        """Return the next request, in order of arrival; None once this rank has been trained and no peer is left."""
        while isinstance(found := await self.next(), PeerLost):
            self._partners.gone[found.rank] = found
        return found
