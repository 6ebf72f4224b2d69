"""Communication schedules of the textbooks, each in a few lines, without values: for tests of how long they take.

This file knows ranks and sizes. It must not know the simulator, nor how long anything should take.

The textbooks count rounds: who has nothing to do in one waits for its end, `ROUND_S`, with all M bytes. Else what is
sent unasked, a round too early, competes with that round's messages, and it all takes longer or shorter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import torch

from simcluster.collectives import exchange, ring_all_reduce
from simcluster.transport import Transport

M, A, B = 1_680_000, 0.01, 1e6
"""Bytes, seconds of latency over a whole way, bytes a second."""

MB = M / B
"""Seconds of all bytes over one link."""

ROUND_S = A + MB
"""A round in which everybody who does anything moves all bytes."""

Schedule = Callable[[Transport], Awaitable[object]]


def block(size: float) -> torch.Tensor:
    assert size == int(size)
    return torch.empty(int(size), dtype=torch.uint8, device="meta")


def floor_lg(p: int) -> int:
    return p.bit_length() - 1


def ceil_lg(p: int) -> int:
    return (p - 1).bit_length()


async def swap(node: Transport, peer: int, size: float, step: object) -> None:
    await exchange(node, peer, peer, f"{step}", block(size))


# rings


async def half_ring(node: Transport) -> None:
    """Reduce-scatter, or all-gather: they move the same."""
    right, left = (node.rank + 1) % node.size, (node.rank - 1) % node.size
    for step in range(node.size - 1):
        await exchange(node, right, left, f"{step}", block(M / node.size))


async def whole_ring(node: Transport) -> None:
    await ring_all_reduce(node, block(M), "r")


# doubling and halving, with the fold of MPICH where p is no power of two


async def folded(node: Transport, inner: Callable[[Transport, int, int], Awaitable[None]]) -> None:
    """The odd ones of the first 2 (p - 2^f) ranks give to the even ones before them, and get back."""
    f = floor_lg(node.size)
    rest = node.size - 2**f
    if node.rank < 2 * rest and node.rank % 2:
        await node.send(node.rank - 1, "fold", block(M))
        await node.recv(node.rank - 1, "unfold")
        return
    if node.rank < 2 * rest:
        await node.recv(node.rank + 1, "fold")
    elif rest:
        await asyncio.sleep(ROUND_S)
    await inner(node, node.rank // 2 if node.rank < 2 * rest else node.rank - rest, 2**f)
    if node.rank < 2 * rest:
        await node.send(node.rank + 1, "unfold", block(M))


def rank_of(place: int, size: int) -> int:
    """The rank at a *place* among the 2^f that are left."""
    rest = size - 2 ** floor_lg(size)
    return 2 * place if place < rest else place + rest


async def doubling(node: Transport, place: int, places: int) -> None:
    for bit in range(floor_lg(places)):
        await swap(node, rank_of(place ^ 2**bit, node.size), M, bit)


async def widest_first(node: Transport, place: int, places: int) -> None:
    """Half of the bytes to and from the farthest, a quarter with the next, and so on, and back again."""
    await halving(node, place, list(reversed(range(floor_lg(places)))))


async def nearest_first(node: Transport, place: int, places: int) -> None:
    await halving(node, place, list(range(floor_lg(places))))


async def halving(node: Transport, place: int, bits: list[int]) -> None:
    steps = [(bit, M / 2 ** (number + 1)) for number, bit in enumerate(bits)]
    for number, (bit, size) in enumerate([*steps, *reversed(steps)]):
        await swap(node, rank_of(place ^ 2**bit, node.size), size, number)


# trees and chains: a round is over when its messages have arrived


async def deliver(node: Transport, to: int, size: float) -> None:
    """Sends, and waits until it is there."""
    await node.send(to, "down", block(size))
    await asyncio.sleep(A)


async def binomial_broadcast(node: Transport) -> None:
    """From rank 0: in every round, all that have it give it to one more each."""
    for step in range(ceil_lg(node.size)):
        if node.rank < 2**step and node.rank + 2**step < node.size:
            await deliver(node, node.rank + 2**step, M)
        elif 2**step <= node.rank < 2 ** (step + 1):
            await node.recv(node.rank - 2**step, "down")


async def binomial_reduce(node: Transport) -> None:
    for step in reversed(range(ceil_lg(node.size))):
        if 2**step <= node.rank < 2 ** (step + 1):
            await node.send(node.rank - 2**step, "up", block(M))
        elif node.rank < 2**step and node.rank + 2**step < node.size:
            await node.recv(node.rank + 2**step, "up")
        elif node.rank < 2**step:
            await asyncio.sleep(ROUND_S)


async def chain(node: Transport) -> None:
    if node.rank:
        await node.recv(node.rank - 1, "down")
    if node.rank + 1 < node.size:
        await node.send(node.rank + 1, "down", block(M))


async def binomial_scatter(node: Transport) -> None:
    """Half of what one has to the middle of those it is for, for p = 2^k."""
    for bit in reversed(range(floor_lg(node.size))):
        below = node.rank % 2 ** (bit + 1)
        if below == 0:
            await deliver(node, node.rank + 2**bit, M * 2**bit / node.size)
        elif below == 2**bit:
            await node.recv(node.rank - 2**bit, "down")


# all-gather and all-to-all


async def gather_doubling(node: Transport) -> None:
    for bit in range(floor_lg(node.size)):
        await swap(node, node.rank ^ 2**bit, M * 2**bit / node.size, bit)


async def gather_bruck(node: Transport) -> None:
    p = node.size
    for bit in range(ceil_lg(p)):
        parts = min(2**bit, p - 2**bit)
        await exchange(node, (node.rank - 2**bit) % p, (node.rank + 2**bit) % p, f"{bit}", block(M * parts / p))


async def pairwise(node: Transport) -> None:
    p = node.size
    for step in range(1, p):
        await exchange(node, (node.rank + step) % p, (node.rank - step) % p, f"{step}", block(M / p))


async def bruck(node: Transport) -> None:
    p = node.size
    for bit in range(floor_lg(p)):
        await exchange(node, (node.rank + 2**bit) % p, (node.rank - 2**bit) % p, f"{bit}", block(M / 2))


# all at once


async def to_all(node: Transport, size: float, tag: str) -> None:
    others = [rank for rank in range(node.size) if rank != node.rank]
    async with asyncio.TaskGroup() as group:
        for peer in others:
            group.create_task(node.send(peer, tag, block(size)))
            group.create_task(node.recv(peer, tag))


async def gossip(node: Transport) -> None:
    """With both neighbours of a ring, as D-PSGD does."""
    async with asyncio.TaskGroup() as group:
        for step in (1, -1):
            peer = (node.rank + step) % node.size
            group.create_task(node.send(peer, "t", block(M)))
            group.create_task(node.recv(peer, "t"))
