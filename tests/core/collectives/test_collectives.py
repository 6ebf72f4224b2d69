"""Collectives give the right sums, and take the textbook's time on clean networks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from torch import Tensor

from simcluster.collectives import broadcast, flatten, naive_all_reduce, ring_all_reduce, unflatten
from simcluster.topology import Link, Node, Topology
from simcluster.transport import Transport
from tests.support.clusters import IDEAL, chain, star

AllReduce = Callable[[Transport, Tensor, str], Awaitable[Tensor]]
B, A = 125e6, 50e-6  # the star's bandwidth, and the latency of a route (two links of 25 us)


def run(topology: Topology, body: Any) -> tuple[list[Any], SimCluster]:
    cluster = SimCluster(topology)
    results = cluster.run([body] * len(topology.workers))
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results, cluster


@pytest.mark.parametrize("all_reduce", [ring_all_reduce, naive_all_reduce])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("length", [1, 5, 7, 1000])
def test_an_all_reduce_gives_every_rank_the_same_sum(all_reduce: AllReduce, size: int, length: int) -> None:
    async def body(node: Transport) -> tuple[Tensor, Tensor]:
        own = torch.rand(length, generator=node.rng.torch)
        before = own.clone()
        total = await all_reduce(node, own, "t")
        assert torch.equal(own, before), "the caller's vector was changed"
        return own, total

    results, _ = run(star(size), body)
    reference = torch.stack([own.double() for own, _ in results]).sum(0)
    for _, total in results:
        assert torch.equal(total, results[0][1]), "ranks disagree"
        torch.testing.assert_close(total.double(), reference, rtol=size * 1e-7, atol=size * 1e-7)


@pytest.mark.parametrize("size", [2, 3, 5, 8, 16])
def test_a_ring_on_a_clean_star_takes_the_textbooks_time_and_bytes(size: int) -> None:
    elements = 1000 * size
    nbytes = 4 * elements

    async def body(node: Transport) -> float:
        await ring_all_reduce(node, torch.ones(elements), "t")
        return asyncio.get_running_loop().time()

    times, cluster = run(star(size, B, A / 2), body)
    # 2 (p-1) rounds of M/p bytes each
    assert times == pytest.approx([2 * (size - 1) * (A + nbytes / (size * B))] * size, rel=1e-9, abs=0)
    for node in cluster.members:
        record = node.recorder.record
        assert record.messages_sent == 2 * (size - 1)
        body_bytes = sum(4 * elements // size for _ in range(2 * (size - 1)))
        headers = record.bytes_sent - body_bytes
        assert 0 < headers < 100 * record.messages_sent


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_naive_schedule_sends_everything_to_everyone_at_once(size: int) -> None:
    async def body(node: Transport) -> float:
        await naive_all_reduce(node, torch.ones(100_000), "t")
        return asyncio.get_running_loop().time()

    times, _ = run(star(size, B, A / 2), body)
    # p-1 copies leave over one link while p-1 others arrive over it: a + (p-1) M/B
    assert times == pytest.approx([A + (size - 1) * 400_000 / B] * size, rel=1e-9, abs=0)


def test_two_ring_neighbours_behind_one_link_take_what_was_computed_by_hand() -> None:
    # n0 and n1 hang on switch s, which one link of B joins to t, where n2 and n3 hang. In the ring 0-1-2-3 only 1 -> 2
    # (over s-t) and 3 -> 0 (over t-s) cross it, one each way: no sharing. In the ring 0-2-1-3, ranks renamed, all four
    # steps cross: two flows each way share B, and every one of the 6 rounds takes M/4 at B/2.
    nodes = {f"n{i}": Node(f"n{i}", IDEAL) for i in range(4)} | {"s": Node("s"), "t": Node("t")}

    def joined(order: list[int]) -> Topology:
        ends = ["s", "s", "t", "t"]
        links = tuple(Link(f"n{i}", ends[order[i]], 4 * B, 0.0) for i in range(4))
        return Topology("two-switches", nodes, (*links, Link("s", "t", B, 0.0)))

    async def body(node: Transport) -> float:
        await ring_all_reduce(node, torch.ones(400_000), "t")
        return asyncio.get_running_loop().time()

    chunk_s = 400_000 / B  # M/4 = 400 kB
    near, _ = run(joined([0, 1, 2, 3]), body)
    far, _ = run(joined([0, 2, 1, 3]), body)
    assert near == pytest.approx([6 * chunk_s] * 4, rel=1e-9)
    assert far == pytest.approx([6 * 2 * chunk_s] * 4, rel=1e-9)


def test_a_ring_through_a_chain_shares_the_way_back() -> None:
    # n0-n1-n2: 0->1 and 1->2 have a link each; 2->0 takes both, the other way: full duplex, so nothing is shared.
    async def body(node: Transport) -> float:
        await ring_all_reduce(node, torch.ones(3000), "t")
        return asyncio.get_running_loop().time()

    times, _ = run(chain(3, B, 0.0), body)
    assert times == pytest.approx([4 * 4000 / B] * 3, rel=1e-9)


def test_a_broadcast_carries_the_roots_tensors() -> None:
    async def body(node: Transport) -> list[Tensor]:
        return await broadcast(node, [torch.full((3,), float(node.rank)), torch.tensor(node.rank)], "b", root=1)

    results, _ = run(star(3), body)
    for tensors in results:
        assert torch.equal(tensors[0], torch.ones(3))
        assert tensors[1] == 1


def test_flat_and_back_is_the_same() -> None:
    tensors = [torch.rand(2, 3), torch.rand(()), torch.rand(0), torch.rand(4)]
    back = unflatten(flatten(tensors), tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, back, strict=True))
    assert flatten(tensors).shape == (11,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pieces_without_values_have_the_form_of_those_with_values(dtype: torch.dtype) -> None:
    like = [torch.rand(2, 3), torch.rand(()), torch.rand(0), torch.rand(4, 3).T]
    without = [tensor.to("meta") for tensor in like]
    vector = torch.zeros(19, dtype=dtype)
    forms = [
        [(tensor.shape, tensor.dtype, tensor.stride()) for tensor in pieces]
        for pieces in (unflatten(vector, like), unflatten(vector.to("meta"), without))
    ]
    assert forms[0] == forms[1]
    pieces = unflatten(torch.empty(6, device="meta"), without[:1])
    pieces[0].resize_(6)
    assert without[0].shape == (2, 3)
    with pytest.raises(RuntimeError):
        unflatten(torch.empty(7, device="meta"), without[:1])
