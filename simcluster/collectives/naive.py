"""Naive schedules: each rank sends all its messages at once, directly to their receivers.

The other schedules of an operation must agree with these, except for rounding.

Sums are added in rank order, whichever message arrives first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from torch import Tensor

from simcluster.collectives.flat import flatten, summed
from simcluster.collectives.operators import Combine, plus
from simcluster.payload import Sendable, pack
from simcluster.transport import Transport


async def naive_broadcast(node: Transport, tensors: Sequence[Tensor], tag: str, root: int) -> list[Tensor]:
    """Return the *tensors* of rank *root* on every rank; the other ranks' *tensors* are ignored."""
    if node.rank != root:
        return list((await node.recv(root, tag)).tensors)
    await _to_all(node, tag, [pack(*tensors)] * node.size)
    return list(tensors)


async def naive_scatter(node: Transport, tensors: Sequence[Tensor], tag: str, root: int) -> Tensor:
    """Return the r-th of rank *root*'s *tensors* on rank r."""
    if node.rank != root:
        return (await node.recv(root, tag)).tensor
    await _to_all(node, tag, tensors)
    return tensors[root]


async def naive_gather(node: Transport, tensor: Tensor, tag: str, root: int) -> list[Tensor]:
    """Return the list of every rank's *tensor*, in rank order, on rank *root*, and an empty list on
    the other ranks.
    """
    if node.rank != root:
        await node.send(root, tag, tensor)
        return []
    return await _from_all(node, tag, tensor)


async def naive_reduce(
    node: Transport, vector: Tensor, tag: str, root: int, *, combine: Combine = plus
) -> Tensor | None:
    """Return the sum of every rank's *vector* on rank *root*, and None on the other ranks."""
    parts = await naive_gather(node, vector, tag, root)
    return summed(parts, combine) if parts else None


async def naive_all_gather(node: Transport, tensor: Tensor, tag: str) -> list[Tensor]:
    """Return every rank's *tensor*, in rank order."""
    return await naive_all_to_all(node, [tensor] * node.size, tag)


async def naive_reduce_scatter(node: Transport, vector: Tensor, tag: str, *, combine: Combine = plus) -> Tensor:
    """Return part r of the sum of every rank's *vector* on rank r."""
    return summed(await naive_all_to_all(node, vector.tensor_split(node.size), tag), combine)


async def naive_all_to_all(node: Transport, tensors: Sequence[Tensor], tag: str) -> list[Tensor]:
    """Return the r-th of every rank's *tensors*, in rank order, on rank r."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_to_all(node, tag, tensors))
        receiving = group.create_task(_from_all(node, tag, tensors[node.rank]))
    return receiving.result()


async def naive_all_reduce(node: Transport, vector: Tensor, tag: str, *, combine: Combine = plus) -> Tensor:
    """Return the sum of every rank's *vector* (equal shapes). It is added in rank order, so it has
    the same bits on all ranks.
    """
    return summed(await naive_all_gather(node, vector, tag), combine)


async def direct_all_reduce(node: Transport, vector: Tensor, tag: str, *, combine: Combine = plus) -> Tensor:
    """Return the sum of every rank's *vector*. Each part is summed by one rank, in rank order.

    A rank sends 2 (p-1)/p M bytes for a vector of M bytes; in the naive all-reduce it sends (p-1)
    M.
    """
    part = await naive_reduce_scatter(node, vector, f"{tag}/scatter", combine=combine)
    return flatten(await naive_all_gather(node, part, f"{tag}/gather"))


async def naive_barrier(node: Transport, tag: str) -> None:
    """Wait for all ranks: each rank sends a message to all others."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_to_all(node, tag, [None] * node.size))
        for peer in _others(node):
            group.create_task(node.recv(peer, tag))


def _others(node: Transport) -> list[int]:
    return [rank for rank in range(node.size) if rank != node.rank]


async def _to_all(node: Transport, tag: str, contents: Sequence[Sendable]) -> None:
    async with asyncio.TaskGroup() as group:
        for peer in _others(node):
            group.create_task(node.send(peer, tag, contents[peer]))


async def _from_all(node: Transport, tag: str, own: Tensor) -> list[Tensor]:
    async with asyncio.TaskGroup() as group:
        receiving = {peer: group.create_task(node.recv(peer, tag)) for peer in _others(node)}
    return [own if rank == node.rank else receiving[rank].result().tensor for rank in range(node.size)]
