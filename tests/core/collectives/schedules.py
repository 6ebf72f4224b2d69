"""Communication without values, each in a few lines, for tests of how long it takes: the library's schedules by name,
and what is no collective.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import torch

from simcluster.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce, reduce_scatter
from simcluster.transport import Transport

M, A, B = 1_680_000, 0.01, 1e6
"""Bytes, seconds of latency over a whole way, bytes a second."""

MB = M / B
"""Seconds of all bytes over one link."""

Schedule = Callable[[Transport], Awaitable[object]]


def block(size: float) -> torch.Tensor:
    assert size == int(size)
    return torch.empty(int(size), dtype=torch.uint8, device="meta")


def floor_lg(p: int) -> int:
    return p.bit_length() - 1


def ceil_lg(p: int) -> int:
    return (p - 1).bit_length()


# the library's: M bytes that p divides


def reducing(schedule: str, **settings: Any) -> Schedule:
    return lambda node: all_reduce(node, whole(node), "t", schedule=schedule, **settings)


def scattering(schedule: str, **settings: Any) -> Schedule:
    return lambda node: reduce_scatter(node, whole(node), "t", schedule=schedule, **settings)


def gathering(schedule: str, **settings: Any) -> Schedule:
    return lambda node: all_gather(node, part(node), "t", schedule=schedule, **settings)


def swapping(schedule: str) -> Schedule:
    return lambda node: all_to_all(node, [part(node)] * node.size, "t", schedule=schedule)


def sending(schedule: str, **settings: Any) -> Schedule:
    return lambda node: broadcast(node, [whole(node)], "t", schedule=schedule, **settings)


def collecting(schedule: str, **settings: Any) -> Schedule:
    return lambda node: reduce(node, whole(node), "t", schedule=schedule, **settings)


def bytes_of(p: int) -> int:
    """About M bytes, in p equal parts of 2^f equal parts."""
    return -(-M // (p << floor_lg(p))) * (p << floor_lg(p))


def whole(node: Transport) -> torch.Tensor:
    return block(bytes_of(node.size))


def part(node: Transport) -> torch.Tensor:
    return block(bytes_of(node.size) / node.size)


# what is no collective


async def gossip(node: Transport) -> None:
    """With both neighbours of a ring, as D-PSGD does."""
    async with asyncio.TaskGroup() as group:
        for step in (1, -1):
            peer = (node.rank + step) % node.size
            group.create_task(node.send(peer, "t", block(M)))
            group.create_task(node.recv(peer, "t"))
