"""One gossip round: send to all neighbours, receive from all neighbours, take the weighted mean.

With M bytes, latency a, bandwidth B and deg neighbours: a + deg M/B if a node has one link, a + M/B if it has one per
neighbour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from simcluster.errors import PeerLost
from simcluster.payload import Message, Sendable
from simcluster.transport import Transport


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
