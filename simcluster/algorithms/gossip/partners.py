"""The two sides of pairwise averaging: ranks that ask a random partner, and ranks that answer every
partner.
"""

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
    """This rank's neighbours on the other side of the bipartite graph. This rank either asks them
    for averages (*asks*) or answers their requests.

    Lost partners may rejoin.
    """

    def __init__(self, node: Transport, graph: Overlay) -> None:
        super().__init__(node, graph)
        asking = graph.asking
        self.asks = node.rank in asking
        self.ranks = [rank for rank in graph.neighbours(node.rank) if (rank in asking) != self.asks]
        self._heard: set[int] = set()

    async def ask(self, x: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the mean of *x* and the weights of a random living partner; None if there is none.

        A lost partner may still be drawn once: the request then raises its loss here, and the
        partner is skipped until it has rejoined.
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
        """Wait until every partner has ended, has announced its end, or is lost and has not
        rejoined.
        """
        waiting = self.ranks
        while waiting:
            lost = []
            for rank in waiting:
                found = await arrival(self.node, rank, "end")
                if isinstance(found, PeerLost):
                    self.gone[rank] = found
                    lost += [rank] if found.reason != ENDED else []
            # Wait again for lost partners that have rejoined.
            waiting = [rank for rank in lost if rank in self.node.peers]

    async def say_end(self) -> None:
        """If this rank asks, notify its partners that its training has ended, although the
        algorithm has not.
        """
        async with asyncio.TaskGroup() as group:
            for partner in self.ranks if self.asks else ():
                group.create_task(self.send(partner, "end"))

    async def send(self, to: int, tag: str, x: Sequence[Tensor] = ()) -> None:
        """Send *x*. A lost partner is ignored here: the next receive from it raises the loss."""
        with suppress(PeerLost):
            await self.node.send(to, tag, pack(*x))


class Requests(PushListener):
    """The stream of requests from *partners*. After each step it looks for ranks that have
    rejoined.
    """

    def __init__(self, partners: Partners, replica: Replica) -> None:
        self._partners = partners
        super().__init__(partners.node, lambda: bool(partners.node.peers), tag="average")
        # Only a rank that joined after the start can be too late. A rank that began with the run
        # may simply never have been drawn, so silence from its partners proves nothing.
        self._heard = replica.ledger.incarnation == 0

    async def next_request(self) -> Message | None:
        """Return the next request in order of arrival; None once this rank has finished training
        and no peer is left.
        """
        while isinstance(found := await self.next(), PeerLost):
            self._partners.gone[found.rank] = found
        return found
