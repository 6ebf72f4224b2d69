"""Textbook times of the library's schedules, to 1e-9, for any number of ranks: Hockney's a + M/B and its kin.

p ranks on a full-duplex star with one rank a host; M bytes; a the latency of the whole way; B the bandwidth; f and c
the logarithm of p, rounded down and up. Thakur, Rabenseifner and Gropp 2005; reduction costs nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from simcluster.collectives import SCHEDULES, barrier, gather, scatter
from simcluster.topology import Link, Node, Topology, ring
from simcluster.transport import ANY, Transport
from tests.core.collectives.schedules import (
    MB,
    A,
    B,
    M,
    Schedule,
    block,
    bytes_of,
    ceil_lg,
    collecting,
    floor_lg,
    gathering,
    gossip,
    part,
    reducing,
    scattering,
    sending,
    swapping,
)
from tests.support.clusters import IDEAL, now, run, star

SIZES = [1, 2, 3, 4, 5, 6, 7, 8, 13]


def elapsed_s(schedule: Schedule, p: int, cluster: Topology | None = None) -> float:
    """When the last of *p* ranks is through."""

    async def body(node: Transport) -> float:
        await schedule(node)
        return now()

    found: float = max(run(cluster or star(p, B, A / 2), *[body] * p))
    return found


def close(seconds: float) -> object:
    return pytest.approx(seconds, rel=1e-9, abs=1e-15)


def seconds(p: int) -> float:
    """Of all bytes over one link."""
    return bytes_of(p) / B


# rings


@pytest.mark.parametrize("p", SIZES)
def test_a_ring(p: int) -> None:
    once = (p - 1) * (A + seconds(p) / p)
    assert elapsed_s(scattering("ring"), p) == close(once)
    assert elapsed_s(gathering("ring"), p) == close(once)
    assert elapsed_s(reducing("ring"), p) == close(2 * once)


# doubling and halving, with the fold of MPICH where p is no power of two


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("p", SIZES)
def test_recursive_doubling_with_a_fold(p: int, first: str) -> None:
    rounds = floor_lg(p) + (2 if p != 2 ** floor_lg(p) else 0)
    assert elapsed_s(reducing("recursive_doubling", first=first), p) == close(rounds * (A + seconds(p)))
    by_name = {"first": first, "schedule": "recursive_doubling"}
    assert elapsed_s(lambda node: barrier(node, "t", **by_name), p) == close(rounds * A)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("p", SIZES)
def test_halving_doubling_with_a_fold(p: int, first: str) -> None:
    f = floor_lg(p)
    fold = 2 * A + 2 * seconds(p) if p != 2**f else 0.0
    expected = 2 * f * A + 2 * (2**f - 1) / 2**f * seconds(p) + fold
    assert elapsed_s(reducing("halving_doubling", first=first), p) == close(expected)


@pytest.mark.parametrize("p", [2, 4, 8])
def test_halves_of_a_power_of_two(p: int) -> None:
    half = floor_lg(p) * A + (p - 1) / p * seconds(p)
    assert elapsed_s(scattering("halving_doubling"), p) == close(half)
    assert elapsed_s(gathering("recursive_doubling"), p) == close(half)


def test_over_two_switches_near_neighbours_first_are_two_and_a_half_times_as_fast() -> None:
    """Four hosts on each, a trunk of B/2. Farthest first: 4 M/2 over it, then M/4 and M/8; twice: 8.75 M/B.

    Nearest first: M/2, M/4, then 4 M/8 over the trunk; twice: 3.5 M/B.
    """
    nodes = {f"n{rank}": Node(f"n{rank}", IDEAL) for rank in range(8)} | {name: Node(name) for name in ("s0", "s1")}
    links = [Link(f"n{rank}", f"s{rank // 4}", B, 0.0) for rank in range(8)]
    two = Topology("two", nodes, (*links, Link("s0", "s1", B / 2, 0.0)))
    far, near = (elapsed_s(reducing("halving_doubling", first=first), 8, two) for first in ("far", "near"))
    assert (far, near) == pytest.approx((8.75 * seconds(8), 3.5 * seconds(8)), rel=1e-9)


# trees and chains


@pytest.mark.parametrize("first", ["near", "far"])
@pytest.mark.parametrize("p", SIZES)
def test_a_binomial_tree_down_and_up(p: int, first: str) -> None:
    once = ceil_lg(p) * (A + seconds(p))
    assert elapsed_s(sending("binomial", first=first), p) == close(once)
    assert elapsed_s(collecting("binomial", first=first), p) == close(once)
    assert elapsed_s(reducing("binomial", first=first), p) == close(2 * once)
    assert elapsed_s(lambda node: barrier(node, "t", schedule="binomial"), p) == close(2 * ceil_lg(p) * A)


@pytest.mark.parametrize("p", SIZES)
def test_a_chain_and_a_broadcast_as_scatter_and_ring_all_gather(p: int) -> None:
    assert elapsed_s(sending("chain"), p) == close((p - 1) * (A + seconds(p)))
    expected = (ceil_lg(p) + p - 1) * A + 2 * (p - 1) / p * seconds(p)
    assert elapsed_s(sending("ring"), p) == close(expected)


@pytest.mark.parametrize("p", SIZES)
def test_a_binomial_scatter_and_gather_take_a_little_less_where_the_tree_is_not_full(p: int) -> None:
    whole_s = ceil_lg(p) * A + (p - 1) / p * seconds(p)
    least_s = min(1, p - 1) * A + (p - 1) / p * seconds(p)
    for schedule in (
        lambda node: scatter(node, [part(node)] * node.size, "t", schedule="binomial"),
        lambda node: gather(node, part(node), "t", schedule="binomial"),
    ):
        found_s = elapsed_s(schedule, p)
        assert least_s * (1 - 1e-9) <= found_s <= whole_s * (1 + 1e-9)
        assert p != 2 ** floor_lg(p) or found_s == close(whole_s)


# all-gather and all-to-all


@pytest.mark.parametrize("p", SIZES)
def test_bruck_for_any_number(p: int) -> None:
    once = ceil_lg(p) * A + (p - 1) / p * seconds(p)
    assert elapsed_s(gathering("bruck"), p) == close(once)
    assert elapsed_s(scattering("bruck"), p) == close(once)
    assert elapsed_s(lambda node: barrier(node, "t", schedule="bruck"), p) == close(ceil_lg(p) * A)
    # What has k ranks to go moves once for each bit of k; for p = 2^k that is half of all in each of lg p rounds.
    moves = sum(distance.bit_count() for distance in range(p))
    assert p != 2 ** floor_lg(p) or moves == floor_lg(p) * p // 2
    assert elapsed_s(swapping("bruck"), p) == close(ceil_lg(p) * A + moves / p * seconds(p))


@pytest.mark.parametrize("p", SIZES)
def test_in_pairs(p: int) -> None:
    assert elapsed_s(swapping("pairwise"), p) == close((p - 1) * (A + seconds(p) / p))
    assert elapsed_s(scattering("pairwise"), p) == close((p - 1) * (A + seconds(p) / p))
    assert elapsed_s(lambda node: barrier(node, "t", schedule="ring"), p) == close((p - 1) * A)


# all at once


@pytest.mark.parametrize("p", [2, 3, 8])
def test_everything_at_once(p: int) -> None:
    parts, copies = A + (p - 1) / p * seconds(p), A + (p - 1) * seconds(p)
    for schedule in (scattering("naive"), gathering("naive"), swapping("naive")):
        assert elapsed_s(schedule, p) == close(parts)
    assert elapsed_s(reducing("direct"), p) == close(2 * parts)
    for schedule in (reducing("naive"), sending("naive"), collecting("naive")):
        assert elapsed_s(schedule, p) == close(copies)
    assert elapsed_s(lambda node: barrier(node, "t", schedule="naive"), p) == close(A)


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


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("trunk_Bps", [B / 2, B, 10 * B])
def test_two_groups_of_m_with_a_trunk_between_them(m: int, trunk_Bps: float) -> None:
    a1, a2 = A, 3 * A  # in a group, and across: half of a1 at both ends
    nodes = {f"n{rank}": Node(f"n{rank}", IDEAL) for rank in range(2 * m)} | {name: Node(name) for name in ("s0", "s1")}
    links = [Link(f"n{rank}", f"s{rank // m}", B, a1 / 2) for rank in range(2 * m)]
    two = Topology("two", nodes, (*links, Link("s0", "s1", trunk_Bps, a2 - a1)))
    sites = [list(range(m)), list(range(m, 2 * m))]
    size = bytes_of(2 * m)
    across_s = a2 + max(size / (2 * trunk_Bps), size / (2 * m * B))
    expected = 2 * (m - 1) * (a1 + size / (m * B)) + 2 * across_s
    assert elapsed_s(reducing("hierarchical", sites=sites), 2 * m, two) == close(expected)


@pytest.mark.slow
@pytest.mark.parametrize("slow", [0.9, 0.6])
@pytest.mark.parametrize("p", [3, 4, 8])
def test_shares_by_bandwidth_keep_all_links_of_an_unequal_star_busy(p: int, slow: float) -> None:
    """w_i = (T B_i - 1)/(p-2) with T = 2(p-1)/(B_1 + ... + B_p), where none is below 0; the ring: 2 (p-1)/p M/B_min.

    Below, the slow link just carries all bytes once each way, and one of 64 pieces more.
    """
    rates = [slow] + [1.0] * (p - 1)
    nodes = {f"n{rank}": Node(f"n{rank}", IDEAL) for rank in range(p)} | {"sw": Node("sw")}
    links = tuple(Link(f"n{rank}", "sw", rate * B, 0.0) for rank, rate in enumerate(rates))
    time = 2 * (p - 1) / sum(rates)
    weights = [max(0.0, time * rate - 1) for rate in rates]
    size = bytes_of(p)
    uneven = Topology("uneven", nodes, links)
    shared_s = elapsed_s(reducing("bandwidth_aware", weights=weights, pieces=64), p, uneven)
    ring_s = elapsed_s(reducing("ring"), p, uneven)
    assert ring_s == close(2 * (p - 1) / p * size / (slow * B))
    least_s = max(time, 1 / slow) * size / B
    assert least_s * (1 - 1e-4) <= shared_s <= least_s * (1 + 1 / 64 + 1e-4) < ring_s  # shares are whole bytes


@pytest.mark.parametrize("p", [2, 4, 7])
def test_a_ring_on_one_half_duplex_medium_and_through_an_access_point(p: int) -> None:
    def air(rate_Bps: float) -> Topology:
        links = [replace(link, bandwidth_Bps=rate_Bps, duplex="half", medium="air") for link in star(p, B, A / 2).links]
        return replace(star(p, B, A / 2), links=tuple(links))

    # A bus, on which every byte is once: as if both of its ways to the star's middle took half as long.
    assert elapsed_s(reducing("ring"), p, air(2 * B)) == close(2 * (p - 1) * (A + seconds(p)))
    assert elapsed_s(reducing("ring"), p, air(B)) == close(2 * (p - 1) * (A + 2 * seconds(p)))


@pytest.mark.parametrize("schedule", sorted(set(SCHEDULES["all_reduce"]) - {"hierarchical", "bandwidth_aware"}))
@pytest.mark.parametrize("p", [2, 5, 8])
def test_no_all_reduce_is_faster_than_its_bytes(p: int, schedule: str) -> None:
    assert elapsed_s(reducing(schedule), p) >= 2 * (p - 1) / p * seconds(p)
