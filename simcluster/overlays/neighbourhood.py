"""The neighbours of a rank over all rounds, and the gossip operations with those that are not gone.

In a round, a rank sends to all neighbours, receives from all, and takes the weighted mean. With M
bytes, latency a, bandwidth B and deg neighbours, a round takes a + deg M/B if a node has one link,
and a + M/B if it has one link per neighbour.

Gossip has two models, which differ: each rank's own model, which the run evaluates during training,
and the mean over all ranks, which the theorems in the papers are about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from simcluster.collectives import flatten, ring_all_reduce, unflatten
from simcluster.compute import unaccompanied
from simcluster.compute.running import weighted_sum
from simcluster.errors import ABSENT, ENDED, PeerLost
from simcluster.overlays.hearing import heard
from simcluster.overlays.overlay import Overlay
from simcluster.payload import Message, Sendable, pack
from simcluster.transport import Transport
from simcluster.unknown_number import UNKNOWN
from simcluster.workloads import Replica


@dataclass
class Swapped:
    """The result of a round: *messages* by rank, and *losses* by rank for the ranks that sent none.

    *unsent* has the ranks that this rank's message did not reach.
    """

    messages: dict[int, Message] = field(default_factory=dict)
    losses: dict[int, PeerLost] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)

    def by_rank(self, me: int, mine: Sequence[Tensor]) -> dict[int, Sequence[Tensor]]:
        """Return rank -> tensors in rank order: those of the messages, and *mine* for rank *me*."""
        return dict(sorted({me: mine, **{rank: message.tensors for rank, message in self.messages.items()}}.items()))


async def swap(node: Transport, to: Collection[int], sources: Collection[int], tag: str, content: Sendable) -> Swapped:
    """Send *content* under *tag* to each rank in *to*, and receive from each rank in *sources*, all
    concurrently.

    The loss of one neighbour does not delay the exchange with the others. If sending raises a
    neighbour's loss, its message is not awaited either: the neighbour may have rejoined already and
    be in its first round.
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
    """Return sum_j w_j x_j over the ranks j in *weights*, for each tensor, added in rank order."""
    ranks = sorted(weights)
    return weighted_sum([tensors[rank] for rank in ranks], [weights[rank] for rank in ranks])


class Neighbourhood:
    """The neighbours of *node* in *graph*. A neighbour that is lost or joins late takes no further
    part.

    *bears_losses*: continue without lost neighbours, even if no neighbour is left. Otherwise a
    round raises the PeerLost; algorithms that need the mean of all ranks choose this, so that no
    checkpoint holds weights that were mixed after a loss.
    """

    def __init__(self, node: Transport, graph: Overlay, *, bears_losses: bool = True) -> None:
        self.node = node
        self.graph = graph
        self.bears_losses = bears_losses
        self.gone: dict[int, PeerLost] = {}
        self._out, self._into = graph.ever(node.rank)

    @classmethod
    async def meet(cls, node: Transport, graph: Overlay, *, bears_losses: bool = True) -> Neighbourhood:
        """Return the Neighbourhood of *node*, and note which neighbours are absent.

        Raise PeerLost if this rank joined only after the others had ended.
        """
        found = cls(node, graph, bears_losses=bears_losses)
        await found._note_absent(graph.neighbours(node.rank))
        return found

    async def swap(self, step: int, tag: str, content: Sendable) -> Swapped:
        """Exchange *content* in the round of *step*: send it to this rank's receivers, and receive
        from its senders.

        Raise PeerLost if a neighbour is lost and losses are not tolerated, or if all senders are
        lost but a receiver is left.
        """
        me, number = self.node.rank, step - 1
        to = [rank for rank in self.graph.receivers(me, number) if rank not in self.gone]
        sources = [rank for rank in self.graph.senders(me, number) if rank not in self.gone]
        came = await swap(self.node, to, sources, f"{tag}/{step}", content)
        for rank in [rank for rank, message in came.messages.items() if message.incarnation]:
            # The sender rejoined after others had begun without it, so its rounds do not match
            # theirs.
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
        """Return this rank's row of W at *step*, with the weights of senders that are absent from
        *came* added to its own weight.
        """
        me, number = self.node.rank, step - 1
        absent = [rank for rank in self.graph.senders(me, number) if rank not in came.messages]
        return self.graph.weights(me, number, absent)

    async def mix(self, step: int, x: Sequence[Tensor]) -> list[Tensor]:
        """Exchange *x* with all neighbours, and return sum_j W_ij x_j over this rank and its
        neighbours.
        """
        came = await self.swap(step, "weights", pack(*x))
        return mix(self.weights(step, came), came.by_rank(self.node.rank, x))

    async def consensus(
        self, step: int, every: int, replica: Replica, x: Sequence[Tensor] | None = None
    ) -> dict[str, float]:
        """Return the squared distance of *replica* from the mean of all ranks' *x*, as metrics to
        record.

        Return no metrics unless *step* is a multiple of *every*, or if *every* is 0. *x* defaults
        to the weights of the replica.
        """
        if not every or step % every:
            return {}
        node = unaccompanied(self.node)  # a measurement must not exchange running statistics
        mean = await self._mean_of_all(node, replica.parameters if x is None else x, f"consensus/{step}")
        return {"consensus": _squared_distance(replica.parameters, mean)}

    async def end_with_mean(self, replica: Replica, x: Sequence[Tensor] | None = None) -> None:
        """Record the squared distance of *replica* from the mean of all ranks' *x*, and load the
        mean.

        *x* defaults to the weights of the replica.
        """
        mean = await self._mean_of_all(self.node, replica.parameters if x is None else x, "output")
        self.node.record(step=replica.steps, consensus=_squared_distance(replica.parameters, mean))
        replica.load(mean)

    async def _mean_of_all(self, node: Transport, x: Sequence[Tensor], tag: str) -> list[Tensor]:
        """Return the mean of all ranks' *x*, bit-identical on every rank.

        Raise PeerLost if a neighbour is gone.
        """
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
        """Raise PeerLost if all *ranks* are gone and one of them has ended its algorithm.

        In that case this rank joined late or rejoined, and the others finished without it. If all
        were lost by failures instead, this rank continues alone.
        """
        losses = [lost for rank, lost in self.gone.items() if rank in ranks]
        for lost in losses if len(losses) == len(ranks) else ():
            if lost.reason == ENDED:
                raise lost


def _squared_distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """Return |a - b|^2, or UNKNOWN if the tensors have no values."""
    if any(tensor.is_meta for tensor in a):
        return UNKNOWN
    return sum(float((mine - other).square().sum()) for mine, other in zip(a, b, strict=True))
