"""The two sides of pairwise averaging: ranks that ask a random partner, and ranks that answer all of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from torch import Tensor

from simcluster.algorithms.parameter_server.serving import Listener
from simcluster.errors import PeerLost
from simcluster.overlays import Neighbourhood, Overlay
from simcluster.payload import Message, pack
from simcluster.transport import Transport


class Partners(Neighbourhood):
    """The neighbours on the other side, which this rank *asks* for averages or answers. A lost one may rejoin."""

    def __init__(self, node: Transport, graph: Overlay) -> None:
        super().__init__(node, graph)
        self.asks = node.rank in graph.asking
        self.ranks = [rank for rank in graph.neighbours(node.rank) if (rank in graph.asking) != self.asks]
        self._heard: set[int] = set()

    async def ask(self, x: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the mean of *x* and the weights of a random living partner; None if there is none.

        A lost rank is asked once more, which raises its loss; only then is a rejoined one accepted.
        """
        node = self.node
        while living := [rank for rank in self.ranks if rank in node.peers or rank not in self._heard]:
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

    async def send(self, to: int, tag: str, x: Sequence[Tensor] = ()) -> None:
        """Send *x*, or the message that no request follows; a loss is noticed where the partner is received from."""
        with suppress(PeerLost):
            await self.node.send(to, tag, pack(*x))


class Requests(Listener):
    """The requests of *partners*, until each has ended or is lost for good."""

    def __init__(self, partners: Partners) -> None:
        self._partners, self._to_end, self._ended = partners, set(partners.ranks), set[int]()
        super().__init__(partners.node, self._may_come, tag="average")

    def _may_come(self) -> bool:
        if self._to_end:
            return True  # first: after each departure the peers are counted again
        there = self._node.peers
        return any(rank not in self._ended and rank in there for rank in self._partners.ranks)

    async def next_request(self) -> Message | None:
        """Return the next request, in order of arrival; None once no more can come."""
        while (request := await self.next()) is not None:
            if isinstance(request, PeerLost):
                self._partners.gone[request.rank] = request
                self._to_end.intersection_update(self._node.peers)
            elif request.tensors:
                self._to_end.add(request.source)  # possibly one that was lost and has rejoined
                return request
            else:
                self._to_end.discard(request.source)
                self._ended.add(request.source)
        return None
