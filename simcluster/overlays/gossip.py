"""One round with the neighbours: everything to all of them, everything from all of them, and the mean by weights.

With M bytes, latency a and bandwidth B, deg neighbours: a + deg M/B where a node has one link, a + M/B where it has one
for each neighbour.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from simcluster.errors import ENDED, PeerLost
from simcluster.hearing import heard
from simcluster.payload import Message, Sendable
from simcluster.transport import Transport


@dataclass
class Swapped:
    """What came of a round: the *messages*, and the *losses* of those who sent none, or were not reached (*unsent*)."""

    messages: dict[int, Message] = field(default_factory=dict)
    losses: dict[int, PeerLost] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)


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


async def absentees(node: Transport, neighbours: Collection[int]) -> dict[int, PeerLost]:
    """Those *neighbours* that are not there, and why: where rounds are numbered, none is let in late.

    Raises PeerLost if this rank came itself when they had ended.
    """
    absent = {rank: await heard(node, rank) for rank in neighbours if rank not in node.peers}
    gone = {rank: lost for rank, lost in absent.items() if isinstance(lost, PeerLost)}
    check_not_left_behind(gone, neighbours)
    return gone


def check_not_left_behind(gone: Mapping[int, PeerLost], neighbours: Collection[int]) -> None:
    """Raise PeerLost if all *neighbours* are *gone* and one of them ended its rounds without this rank's.

    Only a rank that came late, or again, is not waited for. One that lost all its neighbours trains alone.
    """
    if gone.keys() >= set(neighbours):
        for lost in gone.values():
            if lost.reason == ENDED:
                raise lost


def mix(weights: Mapping[int, float], tensors: Mapping[int, Sequence[Tensor]]) -> list[Tensor]:
    """sum_j w_j x_j, tensor by tensor, in the order of the ranks."""
    (first, weight), *rest = sorted(weights.items())
    total = [tensor * weight for tensor in tensors[first]]
    for rank, weight in rest:
        for into, tensor in zip(total, tensors[rank], strict=True):
            into.add_(tensor, alpha=weight)
    return total
