"""Schedules with and without computed rounds, and whether all is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import torch
from hypothesis import strategies as st
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.lookahead import ScheduleEntrants

from simcluster.collectives.binomial import binomial_all_reduce
from simcluster.collectives.bruck import bruck_all_gather
from simcluster.collectives.halving_doubling import halving_all_reduce
from simcluster.collectives.pairwise import pairwise_all_to_all, pairwise_reduce_scatter
from simcluster.collectives.recursive_doubling import doubling_all_gather, doubling_all_reduce
from simcluster.collectives.ring import ring_all_gather, ring_all_reduce, ring_reduce_scatter
from simcluster.errors import Deadlock
from simcluster.topology import Link, Node, Topology
from simcluster.transport import Transport
from tests.support.clusters import IDEAL


class Computing(ScheduleEntrants):
    """Computes the rounds of few ranks, too."""

    fewest = 0


class Skipping(Computing):
    """Remembers what it left out."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.left_out: list[int] = []

    async def enter(self, *entry: Any) -> int:
        rounds = await super().enter(*entry)
        self.left_out.append(rounds)
        return rounds


class Never(ScheduleEntrants):
    async def enter(self, *entry: Any) -> int:
        return 0


class Declining(Computing):
    def _skip_rounds(self) -> bool:
        return False


def outcome(topology: Topology, body: Any, way: type[ScheduleEntrants], **options: Any) -> tuple[Any, ScheduleEntrants]:
    """The results and counts of ranks, or the words of a deadlock; and the lookahead."""
    cluster = SimCluster(topology, **options)
    cluster.together = way(cluster.loop, cluster.members, cluster.streams, cluster.membership, cluster.routes)
    try:
        ends = cluster.run([body] * len(topology.workers))
    except Deadlock as stuck:
        return str(stuck), cluster.together
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    records = [node.recorder.record for node in cluster.members]
    return (ends, [(r.sent_to, r.bytes_received, r.messages_sent, r.spans) for r in records]), cluster.together


def spans(topology: Topology, body: Any, way: type[ScheduleEntrants], **options: Any) -> list[Any]:
    """The spans of each rank."""
    cluster = SimCluster(topology, **options)
    cluster.together = way(cluster.loop, cluster.members, cluster.streams, cluster.membership, cluster.routes)
    cluster.run([body] * len(topology.workers))
    return [node.recorder.record.spans for node in cluster.members]


def same(topology: Topology, body: Any, **options: Any) -> list[int]:
    """Asserts that computed, declined and never offered rounds agree; returns how many each rank was spared."""
    simulated, _ = outcome(topology, body, Never, **options)
    declined, _ = outcome(topology, body, Declining, **options)
    computed, together = outcome(topology, body, Skipping, **options)
    assert declined == simulated
    assert computed == simulated
    assert isinstance(together, Skipping)
    return together.left_out


def uneven_star(rates: list[float], delays: list[float]) -> Topology:
    names = [f"n{i}" for i in range(len(rates))]
    links = tuple(Link(name, "sw", rate, delay) for name, rate, delay in zip(names, rates, delays, strict=True))
    return Topology("uneven", {name: Node(name, IDEAL) for name in names} | {"sw": Node("sw")}, links)


def links_of(most: int) -> st.SearchStrategy[tuple[list[float], list[float]]]:
    """Rates and delays of two to *most* nodes."""
    return st.integers(2, most).flatmap(
        lambda n: st.tuples(
            st.lists(st.sampled_from([125e6, 125e6, 1e8, 3e7]), min_size=n, max_size=n),
            st.lists(st.sampled_from([25e-6, 25e-6, 0.0, 1e-3]), min_size=n, max_size=n),
        )
    )


def now() -> float:
    return asyncio.get_running_loop().time()


Schedule = Callable[[Transport, int, str], Coroutine[Any, Any, object]]


def values(length: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return a vector in which the order of additions shows in the last bits."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(length, generator=generator) * 10.0 ** torch.randint(-3, 4, (length,), generator=generator)).to(
        dtype
    )


def bits(vector: torch.Tensor) -> bytes:
    return vector.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def nothing(length: int) -> torch.Tensor:
    return torch.empty(length, device="meta")


SCHEDULES: dict[str, Schedule] = {
    "ring": lambda node, length, tag: ring_all_reduce(node, nothing(length), tag),
    "ring_reduce_scatter": lambda node, length, tag: ring_reduce_scatter(node, nothing(length), tag),
    "halving_near": lambda node, length, tag: halving_all_reduce(node, nothing(length), tag, first="near"),
    "halving_far": lambda node, length, tag: halving_all_reduce(node, nothing(length), tag, first="far"),
    "doubling_near": lambda node, length, tag: doubling_all_reduce(node, nothing(length), tag, first="near"),
    "doubling_far": lambda node, length, tag: doubling_all_reduce(node, nothing(length), tag, first="far"),
    "tree_near": lambda node, length, tag: binomial_all_reduce(node, nothing(length), tag, first="near"),
    "tree_far": lambda node, length, tag: binomial_all_reduce(node, nothing(length), tag, first="far"),
    "ring_all_gather": lambda node, length, tag: ring_all_gather(node, nothing(length), tag),
    "doubling_all_gather_near": lambda node, length, tag: doubling_all_gather(node, nothing(length), tag, first="near"),
    "doubling_all_gather_far": lambda node, length, tag: doubling_all_gather(node, nothing(length), tag, first="far"),
    "bruck_all_gather": lambda node, length, tag: bruck_all_gather(node, nothing(length), tag),
    "ring_all_gather_unequal": lambda node, length, tag: ring_all_gather(node, nothing(length + node.rank), tag),
    "pairwise_reduce_scatter": lambda node, length, tag: pairwise_reduce_scatter(node, nothing(length), tag),
    "pairwise_all_to_all": lambda node, length, tag: pairwise_all_to_all(
        node, [nothing((length * peer) % 1013) for peer in range(node.size)], tag
    ),
}
ROUNDS = {
    "ring": lambda p: 2 * (p - 1),
    "ring_reduce_scatter": lambda p: p - 1,
    "halving_near": lambda p: 2 * (p.bit_length() - 1),
    "halving_far": lambda p: 2 * (p.bit_length() - 1),
    "doubling_near": lambda p: p.bit_length() - 1,
    "doubling_far": lambda p: p.bit_length() - 1,
    "tree_near": lambda p: 2 * (p.bit_length() - 1),
    "tree_far": lambda p: 2 * (p.bit_length() - 1),
    "ring_all_gather": lambda p: p - 1,
    "doubling_all_gather_near": lambda p: p.bit_length() - 1,
    "doubling_all_gather_far": lambda p: p.bit_length() - 1,
    "bruck_all_gather": lambda p: p.bit_length() - 1,
    "pairwise_reduce_scatter": lambda p: p - 1,
}
