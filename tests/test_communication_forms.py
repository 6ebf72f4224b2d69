"""Textbook times of communication schedules, to 1e-9: Hockney's a + M/B and its kin, on clean networks.

p ranks on a full-duplex star with one rank a host; M bytes; a the latency of the whole way; B the bandwidth; f and c
the logarithm of p, rounded down and up. Thakur, Rabenseifner and Gropp 2005; reduction costs nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from simcluster.collectives import broadcast, exchange, naive_all_reduce
from simcluster.topology import Link, Node, Topology
from simcluster.topology.generators import ring
from simcluster.transport import ANY, Transport
from tests.clusters import IDEAL, now, run, star
from tests.schedules import (
    MB,
    A,
    B,
    M,
    Schedule,
    binomial_broadcast,
    binomial_reduce,
    binomial_scatter,
    block,
    bruck,
    ceil_lg,
    chain,
    doubling,
    floor_lg,
    folded,
    gather_bruck,
    gather_doubling,
    gossip,
    half_ring,
    nearest_first,
    pairwise,
    swap,
    to_all,
    whole_ring,
    widest_first,
)


def elapsed_s(schedule: Schedule, p: int, cluster: Topology | None = None) -> float:
    """When the last of *p* ranks is through."""

    async def body(node: Transport) -> float:
        await schedule(node)
        return now()

    found: float = max(run(cluster or star(p, B, A / 2), *[body] * p))
    return found


# rings


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_a_ring(p: int) -> None:
    assert elapsed_s(half_ring, p) == pytest.approx((p - 1) * (A + MB / p), rel=1e-9)
    assert elapsed_s(whole_ring, p) == pytest.approx(2 * (p - 1) * (A + MB / p), rel=1e-9)


# doubling and halving, with the fold of MPICH where p is no power of two


@pytest.mark.parametrize("p", [2, 4, 8])
def test_recursive_doubling(p: int) -> None:
    assert elapsed_s(lambda node: folded(node, doubling), p) == pytest.approx(floor_lg(p) * (A + MB), rel=1e-9)


@pytest.mark.parametrize("p", [3, 5, 6, 7])
def test_recursive_doubling_with_a_fold(p: int) -> None:
    expected = (2 + floor_lg(p)) * (A + MB)
    assert elapsed_s(lambda node: folded(node, doubling), p) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_halving_doubling(p: int) -> None:
    expected = 2 * floor_lg(p) * A + 2 * (p - 1) / p * MB
    assert elapsed_s(lambda node: folded(node, widest_first), p) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("p", [3, 5, 6, 7])
def test_halving_doubling_with_a_fold(p: int) -> None:
    f = floor_lg(p)
    expected = (2 + 2 * f) * A + 2 * MB + 2 * (2**f - 1) / 2**f * MB
    assert elapsed_s(lambda node: folded(node, widest_first), p) == pytest.approx(expected, rel=1e-9)


def test_over_two_switches_near_neighbours_first_are_two_and_a_half_times_as_fast() -> None:
    """Four hosts on each, a trunk of B/2. Farthest first: 4 M/2 over it, then M/4 and M/8; twice: 8.75 M/B.

    Nearest first: M/2, M/4, then 4 M/8 over the trunk; twice: 3.5 M/B.
    """
    nodes = {f"n{rank}": Node(f"n{rank}", IDEAL) for rank in range(8)} | {name: Node(name) for name in ("s0", "s1")}
    links = [Link(f"n{rank}", f"s{rank // 4}", B, 0.0) for rank in range(8)]
    two = Topology("two", nodes, (*links, Link("s0", "s1", B / 2, 0.0)))
    far = elapsed_s(lambda node: folded(node, widest_first), 8, two)
    near = elapsed_s(lambda node: folded(node, nearest_first), 8, two)
    assert (far, near) == pytest.approx((8.75 * MB, 3.5 * MB), rel=1e-9)


# trees and chains: a round is over when its messages have arrived


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_a_binomial_tree_down_and_up_and_a_chain(p: int) -> None:
    async def both(node: Transport) -> None:
        await binomial_reduce(node)
        await binomial_broadcast(node)

    assert elapsed_s(binomial_broadcast, p) == pytest.approx(ceil_lg(p) * (A + MB), rel=1e-9)
    assert elapsed_s(both, p) == pytest.approx(2 * ceil_lg(p) * (A + MB), rel=1e-9)
    assert elapsed_s(chain, p) == pytest.approx((p - 1) * (A + MB), rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_a_broadcast_as_scatter_and_ring_all_gather(p: int) -> None:
    async def scatter_and_gather(node: Transport) -> None:
        await binomial_scatter(node)
        await half_ring(node)

    expected = (ceil_lg(p) + p - 1) * A + 2 * (p - 1) / p * MB
    assert elapsed_s(scatter_and_gather, p) == pytest.approx(expected, rel=1e-9)


# all-gather and all-to-all


@pytest.mark.parametrize("p", [2, 4, 8])
def test_an_all_gather_by_doubling(p: int) -> None:
    assert elapsed_s(gather_doubling, p) == pytest.approx(floor_lg(p) * A + (p - 1) / p * MB, rel=1e-9)


@pytest.mark.parametrize("p", [2, 3, 5, 7, 8])
def test_an_all_gather_by_bruck_for_any_number(p: int) -> None:
    assert elapsed_s(gather_bruck, p) == pytest.approx(ceil_lg(p) * A + (p - 1) / p * MB, rel=1e-9)


@pytest.mark.parametrize("p", [3, 4, 7, 8])
def test_an_all_to_all_in_pairs(p: int) -> None:
    assert elapsed_s(pairwise, p) == pytest.approx((p - 1) * (A + MB / p), rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_an_all_to_all_by_bruck(p: int) -> None:
    assert elapsed_s(bruck, p) == pytest.approx(floor_lg(p) * (A + MB / 2), rel=1e-9)


# all at once


@pytest.mark.parametrize("p", [2, 3, 8])
def test_a_direct_reduce_scatter_and_all_gather(p: int) -> None:
    async def direct(node: Transport) -> None:
        await to_all(node, M / p, "scatter")
        await to_all(node, M / p, "gather")

    assert elapsed_s(direct, p) == pytest.approx(2 * (A + (p - 1) / p * MB), rel=1e-9)


@pytest.mark.parametrize("p", [2, 3, 8])
def test_everything_to_everyone_and_from_one_to_all(p: int) -> None:
    async def naive(node: Transport) -> None:
        await naive_all_reduce(node, block(M), "n")

    async def from_one(node: Transport) -> None:
        await broadcast(node, [block(M)], "b")

    assert elapsed_s(naive, p) == pytest.approx(A + (p - 1) * MB, rel=1e-9)
    assert elapsed_s(from_one, p) == pytest.approx(A + (p - 1) * MB, rel=1e-9)


@pytest.mark.parametrize("p", [2, 3, 8])
def test_a_parameter_server(p: int) -> None:
    async def push_and_pull(node: Transport) -> None:
        if node.rank:
            await node.send(0, "push", block(M))
            await node.recv(0, "pull")
            return
        for _ in range(p - 1):
            await node.recv(ANY, "push")
        async with asyncio.TaskGroup() as group:
            for peer in range(1, p):
                group.create_task(node.send(peer, "pull", block(M)))

    assert elapsed_s(push_and_pull, p) == pytest.approx(2 * (A + (p - 1) * MB), rel=1e-9)


def test_gossip_shares_the_link_of_a_star_and_not_those_of_a_ring() -> None:
    assert elapsed_s(gossip, 6) == pytest.approx(A + 2 * MB, rel=1e-9)
    assert elapsed_s(gossip, 6, ring(6, bandwidth=B, latency=A)) == pytest.approx(A + MB, rel=1e-9)


# other networks


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("trunk_Bps", [B / 2, B, 10 * B])
def test_two_groups_of_m_with_a_trunk_between_them(m: int, trunk_Bps: float) -> None:
    a1, a2 = A, 3 * A  # in a group, and across: half of a1 at both ends
    nodes = {f"n{rank}": Node(f"n{rank}", IDEAL) for rank in range(2 * m)} | {name: Node(name) for name in ("s0", "s1")}
    links = [Link(f"n{rank}", f"s{rank // m}", B, a1 / 2) for rank in range(2 * m)]
    two = Topology("two", nodes, (*links, Link("s0", "s1", trunk_Bps, a2 - a1)))

    async def inside(node: Transport, tag: str) -> None:
        first = node.rank // m * m
        right, left = (first + (node.rank - first + step) % m for step in (1, -1))
        for step in range(m - 1):
            await exchange(node, right, left, f"{tag}{step}", block(M / m))

    async def hierarchical(node: Transport) -> None:
        await inside(node, "scatter")
        await swap(node, (node.rank + m) % (2 * m), M / (2 * m), "half")
        await swap(node, (node.rank + m) % (2 * m), M / (2 * m), "other half")
        await inside(node, "gather")

    across_s = a2 + max(M / (2 * trunk_Bps), M / (2 * m * B))
    expected = 2 * (m - 1) * (a1 + MB / m) + 2 * across_s
    assert elapsed_s(hierarchical, 2 * m, two) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 7])
def test_a_ring_on_one_half_duplex_medium_and_through_an_access_point(p: int) -> None:
    def air(rate_Bps: float) -> Topology:
        links = [replace(link, bandwidth_Bps=rate_Bps, duplex="half", medium="air") for link in star(p, B, A / 2).links]
        return replace(star(p, B, A / 2), links=tuple(links))

    # A bus, on which every byte is once: as if both of its ways to the star's middle took half as long.
    assert elapsed_s(whole_ring, p, air(2 * B)) == pytest.approx(2 * (p - 1) * (A + MB), rel=1e-9)
    assert elapsed_s(whole_ring, p, air(B)) == pytest.approx(2 * (p - 1) * (A + 2 * MB), rel=1e-9)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_no_all_reduce_is_faster_than_its_bytes(p: int) -> None:
    bound_s = 2 * (p - 1) / p * MB
    for schedule in (whole_ring, lambda node: folded(node, doubling), lambda node: folded(node, widest_first)):
        assert elapsed_s(schedule, p) >= bound_s
