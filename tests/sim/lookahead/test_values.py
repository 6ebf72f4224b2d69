"""Sums that are made once for all ranks give what messages give."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.collectives.ring import ring_all_gather, ring_all_reduce, ring_broadcast, ring_reduce_scatter
from simcluster.forwarding import Forwarding
from simcluster.payload import pack
from simcluster.topology import Topology
from simcluster.transport import Transport
from simcluster_backends.sim.cluster import Cluster
from tests.sim.lookahead.oracle import bits, links_of, message_by_message, now, uneven_star, values
from tests.support.clusters import star

SIZES = [0, 1, 5, 64, 4999]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32]


def outcome(topology: Topology, body: Any, **options: Any) -> tuple[list[Any], list[str]]:
    """Return what each rank returned or raised, and the digest of its record."""
    cluster = Cluster(topology, **options)
    ends = cluster.run([body] * len(topology.workers))
    shown = [f"{type(end).__name__}: {end}" if isinstance(end, BaseException) else end for end in ends]
    return shown, [node.recorder.record.digest for node in cluster.members]


def same(topology: Topology, body: Any, **options: Any) -> list[Any]:
    """Assert that both ways agree; return the ends."""
    with message_by_message():
        ends, digests = outcome(topology, body, **options)
    assert outcome(topology, body, **options) == (ends, digests)
    return ends


async def mean(node: Transport, vector: torch.Tensor, tag: str) -> list[torch.Tensor]:
    return [await ring_all_reduce(node, vector, tag, divisor=node.size)]


async def total(node: Transport, vector: torch.Tensor, tag: str) -> list[torch.Tensor]:
    return [await ring_all_reduce(node, vector, tag)]


async def part(node: Transport, vector: torch.Tensor, tag: str) -> list[torch.Tensor]:
    return [await ring_reduce_scatter(node, vector, tag)]


async def all_of(node: Transport, vector: torch.Tensor, tag: str) -> list[torch.Tensor]:
    found = await ring_all_gather(node, vector, tag)
    return [other for rank, other in enumerate(found) if rank != node.rank]  # its own is the caller's


async def unequal(node: Transport, vector: torch.Tensor, tag: str) -> list[torch.Tensor]:
    return await all_of(node, vector[: len(vector) - min(node.rank, len(vector))].view(1, -1), tag)


async def roots(node: Transport, vector: torch.Tensor, tag: str) -> list[torch.Tensor]:
    found = await ring_broadcast(node, [vector], tag, 0)
    return [] if node.rank == 0 else found


WAYS = {way.__name__: way for way in (total, mean, part, all_of, unequal, roots)}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=30, deadline=None)
@given(
    links_of(6),
    st.sampled_from(SIZES),
    st.sampled_from(DTYPES),
    st.sampled_from([300, 6000, 10**9]),
    st.sampled_from([0.0, 1e-6, 3e-4]),
    st.sampled_from(["full", "half"]),
)
def test_every_bit_time_and_span_is_the_messages_own(
    way: str,
    links: tuple[list[float], list[float]],
    length: int,
    dtype: torch.dtype,
    inbox_bytes: int,
    apart_s: float,
    duplex: str,
) -> None:
    dtype = torch.float32 if way == "mean" and not dtype.is_floating_point else dtype

    async def body(node: Transport) -> list[Any]:
        found: list[Any] = []
        for number in range(3):
            await asyncio.sleep(apart_s * node.rank)
            vector = values(length, dtype, 10 * number + node.rank)
            results = await WAYS[way](node, vector, f"r{number}")
            vector.zero_()  # the caller's again
            found += [[bits(result) for result in results], now()]
            for result in results:
                result.fill_(1)  # nothing else holds it
            other = (node.rank + 2) % node.size
            if other != node.rank:
                async with asyncio.TaskGroup() as group:
                    group.create_task(node.send(other, "after", pack(torch.ones(997))))
                    group.create_task(node.recv((node.rank - 2) % node.size, "after"))
        return found

    rates, delays = links
    topology = uneven_star(rates, delays) if duplex == "full" else star(len(rates), duplex="half")
    same(topology, body, inbox_bytes=inbox_bytes)


def test_a_result_and_a_vector_are_the_callers_own_from_the_return_on() -> None:
    async def body(node: Transport) -> bytes:
        vector = values(8000, torch.float32, node.rank)
        total = await ring_all_reduce(node, vector, "r")
        before = bits(total)
        vector.fill_(float(node.rank))
        total.fill_(float(node.rank))
        await asyncio.sleep(1.0)
        assert bits(total) == bits(torch.full((8000,), float(node.rank)))
        return before

    ends = same(star(5), body)
    assert len(set(ends)) == 1


def test_a_rank_that_gives_up_may_change_its_vector() -> None:
    async def body(node: Transport) -> list[Any]:
        vector, found = values(8000, torch.float32, node.rank), list[Any]()
        await asyncio.sleep(1e-3 * node.rank)
        try:
            async with asyncio.timeout(1e-3 if node.rank == 0 else 1.0):
                found += [bits(await ring_all_reduce(node, vector, "r")), now()]
        except TimeoutError:
            vector.zero_()
            found.append(now())
            if node.rank == 0:  # it joins again, after a message of the first time
                found += [bits(await ring_all_reduce(node, values(8000, torch.float32, 9), "r")), now()]
        return found

    same(star(3), body)


def test_vectors_of_other_lengths_are_an_error_on_the_same_rank_at_the_same_time() -> None:
    async def body(node: Transport) -> None:
        await ring_all_reduce(node, values(8000 + (node.rank == 2), torch.float32, node.rank), "r")

    ends = same(star(4), body)
    assert any("expected vectors of one length" in end for end in ends)


@pytest.mark.parametrize("hidden", [0, 2])
def test_ranks_with_and_without_the_short_cut_sum_together(hidden: int) -> None:
    async def body(node: Transport) -> tuple[bytes, float]:
        way = Forwarding(node) if node.rank == hidden else node
        return bits(await ring_all_reduce(way, values(8000, torch.float32, node.rank), "r")), now()

    same(star(4), body)


@pytest.mark.parametrize("others", [torch.float64, torch.float16])
def test_ranks_of_other_dtypes_sum_as_by_messages(others: torch.dtype) -> None:
    async def body(node: Transport) -> tuple[bytes, float]:
        dtype = others if node.rank % 2 else torch.float32
        return bits(await ring_all_reduce(node, values(8000, dtype, node.rank), "r")), now()

    same(star(5), body)


def test_a_peer_that_fails_amid_the_rounds_is_lost_at_the_same_time() -> None:
    async def body(node: Transport) -> Any:
        if node.rank == 2:
            async with asyncio.timeout(2e-4):
                await ring_all_reduce(node, values(8000, torch.float32, node.rank), "r")
        try:
            return bits(await ring_all_reduce(node, values(8000, torch.float32, node.rank), "r"))
        except Exception as error:
            return str(error), now()

    ends = same(star(4), body)
    assert any("lost" in str(end) for end in ends)
