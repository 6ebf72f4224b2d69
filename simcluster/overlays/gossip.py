"""One round with the neighbours: everything to all of them, everything from all of them, and the mean by weights.

With M bytes, latency a and bandwidth B, deg neighbours: a + deg M/B where a node has one link, a + M/B where it has one
for each neighbour.
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
    """The result of a round: *messages*, and the *losses* of ranks that sent none, or were not reached (*unsent*)."""

    messages: dict[int, Message] = field(default_factory=dict)
    losses: dict[int, PeerLost] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)

    def by_rank(self, me: int, mine: Sequence[Tensor]) -> dict[int, Sequence[Tensor]]:
        """Return the tensors of the messages and *mine*, of rank *me*, in the order of ranks."""
        return dict(sorted({me: mine, **{rank: message.tensors for rank, message in self.messages.items()}}.items()))


async def swap(node: Transport, to: Collection[int], sources: Collection[int], tag: str, content: Sendable) -> Swapped:
    """Sends *content* to each of *to* and receives from each of *sources*, all at the same time, under *tag*.

    A neighbour that is lost keeps nobody from the others. One that a send finds lost may be back at once, and in the
    first round: it is not waited for.
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
    """sum_j w_j x_j, tensor by tensor, in the order of the ranks."""
    (first, weight), *rest = sorted(weights.items())
    total = [tensor * weight for tensor in tensors[first]]
    for rank, weight in rest:
        for into, tensor in zip(total, tensors[rank], strict=True):
            into.add_(tensor, alpha=weight)
    return total
