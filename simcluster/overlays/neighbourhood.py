"""A rank's neighbours over all rounds: which of them are gone, and the gossip operations.

A round sends to all neighbours, receives from all, and takes the weighted mean. With M bytes, latency a, bandwidth B
and deg neighbours: a + deg M/B if a node has one link, a + M/B if it has one per neighbour.

Gossip has two models that must not be confused: each rank's, which the run evaluates during training, and the mean over
all ranks, which the papers' theorems are about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from simcluster.collectives import flatten, ring_all_reduce, unflatten
from simcluster.compute import unaccompanied
from simcluster.errors import ABSENT, ENDED, PeerLost
from simcluster.overlays.hearing import heard
from simcluster.overlays.overlay import Overlay
from simcluster.payload import Message, Sendable, pack
from simcluster.transport import Transport
from simcluster.unknown_number import UNKNOWN
from simcluster.workloads import Replica


@dataclass
class Swapped:
    """The result of a round: *messages*, and the *losses* of ranks that sent none or were not reached (*unsent*)."""

    messages: dict[int, Message] = field(default_factory=dict)
    losses: dict[int, PeerLost] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)

    def by_rank(self, me: int, mine: Sequence[Tensor]) -> dict[int, Sequence[Tensor]]:
        """Return the tensors of the messages and *mine*, of rank *me*, in rank order."""
        return dict(sorted({me: mine, **{rank: message.tensors for rank, message in self.messages.items()}}.items()))


async def swap(node: Transport, to: Collection[int], sources: Collection[int], tag: str, content: Sendable) -> Swapped:
    """Send *content* to each of *to* and receive from each of *sources*, all concurrently, under *tag*.

    Losses do not hold up the exchange with the other neighbours. A peer that a send finds lost is not waited for: it
    may have rejoined at once, in its first round.
    """
    done = Swapped()
    receiving: dict[int, asyncio.Task[None]] = {}

    async def send(peer: int) -> None:
        try:
            await node.send(peer, tag, content)
        except PeerLost as lost:
            done.losses[peer] = lost
            done.unsent.add(peer)
            if peer in receiving:
                receiving[peer].cancel()

    async def receive(peer: int) -> None:
        try:
            done.messages[peer] = await node.recv(peer, tag)
        except PeerLost as lost:
            done.losses[peer] = lost

    async with asyncio.TaskGroup() as group:
        for peer in to:
            group.create_task(send(peer))
        for peer in sources:
            receiving[peer] = group.create_task(receive(peer))
    return done


def mix(weights: Mapping[int, float], tensors: Mapping[int, Sequence[Tensor]]) -> list[Tensor]:
    """Return sum_j w_j x_j, tensor by tensor, added in rank order."""
    (first, weight), *rest = sorted(weights.items())
    total = [tensor * weight for tensor in tensors[first]]
    for rank, weight in rest:
        for into, tensor in zip(total, tensors[rank], strict=True):
            into.add_(tensor, alpha=weight)
    return total


class Neighbourhood:
    """The neighbours of *node* on *graph*. A neighbour that is *gone* or joins late stays out.

    *bears_losses*: whether a rank continues without its lost neighbours, even with none left. If not, a round
    raises the PeerLost; so where the mean of all is needed, no checkpoint holds weights that were mixed after a loss.
    """

    def __init__(self, node: Transport, graph: Overlay, *, bears_losses: bool = True) -> None:
        self.node, self.graph, self.bears_losses = node, graph, bears_losses
        self.gone: dict[int, PeerLost] = {}
        self._out, self._into = graph.ever(node.rank)

    @classmethod
    async def meet(cls, node: Transport, graph: Overlay, *, bears_losses: bool = True) -> Neighbourhood:
        """Return the neighbours, noting those absent. Raise PeerLost if this rank joined after the end."""
        found = cls(node, graph, bears_losses=bears_losses)
        await found._note_absent(graph.neighbours(node.rank))
        return found

    async def swap(self, step: int, tag: str, content: Sendable) -> Swapped:
        """Send *content* to all receivers of this rank in the round of *step*, and receive from all its senders.

        Raise PeerLost if losses are not tolerated, or if they leave a rank that could only send.
        """
        me, number = self.node.rank, step - 1
        to = [rank for rank in self.graph.receivers(me, number) if rank not in self.gone]
        sources = [rank for rank in self.graph.senders(me, number) if rank not in self.gone]
        came = await swap(self.node, to, sources, f"{tag}/{step}", content)
        for rank in [rank for rank, message in came.messages.items() if message.incarnation]:
            # It joined after others had begun without it, and before this rank did: their rounds are not its own.
            del came.messages[rank]
            came.losses[rank] = PeerLost(rank, reason=ABSENT)
        self.gone |= came.losses
        if self.gone and not self.bears_losses:
            raise self._last_loss
        if self.gone and self.gone.keys() >= self._into:
            everyone = self._out | self._into
            await self._note_absent(everyone - self.gone.keys())
            self._check_not_left_behind(everyone)
            if not self.gone.keys() >= self._out:
                raise self._last_loss
        return came

    def weights(self, step: int, came: Swapped) -> dict[int, float]:
        """Return this rank's row of W for what *came* at *step*; it keeps the weights of absent neighbours."""
        me, number = self.node.rank, step - 1
        absent = [rank for rank in self.graph.senders(me, number) if rank not in came.messages]
        return self.graph.weights(me, number, absent)

    async def mix(self, step: int, x: Sequence[Tensor]) -> list[Tensor]:
        """Swap *x* and return sum_j W_ij x_j over this rank and its neighbours."""
        came = await self.swap(step, "weights", pack(*x))
        return mix(self.weights(step, came), came.by_rank(self.node.rank, x))

    async def consensus(
        self, step: int, every: int, replica: Replica, x: Sequence[Tensor] | None = None
    ) -> dict[str, float]:
        """Return the distance of *replica* from the mean of all ranks' *x*, to record; empty between *every* steps.

        *every* 0 means never. *x* defaults to the weights of the replicas.
        """
        if not every or step % every:
            return {}
        node = unaccompanied(self.node)  # a look changes nothing
        mean = await self._mean_of_all(node, replica.parameters if x is None else x, f"consensus/{step}")
        return {"consensus": _squared_distance(replica.parameters, mean)}

    async def end_with_mean(self, replica: Replica, x: Sequence[Tensor] | None = None) -> None:
        """Record the distance of *replica* from the mean of all ranks' *x*, and load the mean."""
        mean = await self._mean_of_all(self.node, replica.parameters if x is None else x, "output")
        self.node.record(step=replica.steps, consensus=_squared_distance(replica.parameters, mean))
        replica.load(mean)

    async def _mean_of_all(self, node: Transport, x: Sequence[Tensor], tag: str) -> list[Tensor]:
        """Return the mean, bit-identical on every rank. Raise the first loss if any rank is gone: there is no mean."""
        for lost in self.gone.values():
            raise lost
        return unflatten(await ring_all_reduce(node, flatten(x), tag) / node.size, x)

    @property
    def _last_loss(self) -> PeerLost:
        return next(reversed(self.gone.values()))

    async def _note_absent(self, ranks: Collection[int]) -> None:
        absent = {rank: await heard(self.node, rank) for rank in ranks if rank not in self.node.peers}
        self.gone |= {rank: lost for rank, lost in absent.items() if isinstance(lost, PeerLost)}
        self._check_not_left_behind(ranks)

    def _check_not_left_behind(self, ranks: Collection[int]) -> None:
        """Raise PeerLost if all *ranks* are gone and one of them ended its rounds without this rank.

        That happens only to a rank that joined late or rejoined. A rank that lost all neighbours trains alone.
        """
        losses = [lost for rank, lost in self.gone.items() if rank in ranks]
        for lost in losses if len(losses) == len(ranks) else ():
            if lost.reason == ENDED:
                raise lost


def _squared_distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """Return |a - b|^2, unknown where nothing is computed."""
    if any(tensor.is_meta for tensor in a):
        return UNKNOWN
    return sum(float((mine - other).square().sum()) for mine, other in zip(a, b, strict=True))
