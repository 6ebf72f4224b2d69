"""Scatter and gather along a binomial tree: each rank passes on half of what it has.

With p = 2^k ranks, M bytes, latency a and bandwidth B, on a full-duplex star: lg p a + (p-1)/p M/B. For other p
slightly less than ceil(lg p) a + (p-1)/p M/B: with eager sends no tree takes all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from torch import Tensor

from simcluster.payload import pack
from simcluster.transport import Transport


async def binomial_scatter(node: Transport, tensors: Sequence[Tensor], tag: str, root: int) -> Tensor:
    """Return tensor r of rank *root*'s *tensors* on rank r; the other ranks' *tensors* are ignored."""
    parent, mine, children = _family(node, root)
    if parent is None:
        held = [tensors[(place + root) % node.size] for place in range(node.size)]
    else:
        held = list((await node.recv(parent, tag)).tensors)
    for child in children:
        await node.send((child.start + root) % node.size, tag, pack(*_part(held, child, mine)))
    return held[0]


async def binomial_gather(node: Transport, tensor: Tensor, tag: str, root: int) -> list[Tensor]:
    """Return every rank's *tensor*, by rank, on rank *root*; an empty list on the others."""
    parent, _, children = _family(node, root)
    async with asyncio.TaskGroup() as group:
        receiving = [group.create_task(node.recv((child.start + root) % node.size, tag)) for child in children]
    held = [tensor]
    for part in reversed(receiving):  # the half cut off last is the nearest
        held += part.result().tensors
    if parent is not None:
        await node.send(parent, tag, pack(*held))
        return []
    return [held[(rank - root) % node.size] for rank in range(node.size)]


def _family(node: Transport, root: int) -> tuple[int | None, range, list[range]]:
    """Return (parent, this rank's subtree, its children's subtrees, largest first) as places from the root."""
    place, parent, mine = (node.rank - root) % node.size, None, range(node.size)
    children: list[range] = []
    while len(mine) > 1:
        kept, given = _halves(mine)
        if place in given:
            parent, mine, children = (mine.start + root) % node.size, given, []
        else:
            mine = kept
            if place == kept.start:
                children.append(given)
    return parent, range(place, max((child.stop for child in children), default=place + 1)), children


def _halves(places: range) -> tuple[range, range]:
    """Return (the half that the first of *places* keeps, the half that it passes on, which is never larger)."""
    middle = places.stop - len(places) // 2
    return places[: middle - places.start], places[middle - places.start :]


def _part(held: Sequence[Tensor], places: range, mine: range) -> Sequence[Tensor]:
    return held[places.start - mine.start : places.stop - mine.start]
