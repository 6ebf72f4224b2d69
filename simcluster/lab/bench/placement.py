"""Knowledge of a network for schedules, which cannot see the topology: near ranks, sites, slow links."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise, permutations
from typing import TypeAlias

import numpy as np

from simcluster.collectives.bandwidth_aware import PIECES, shares
from simcluster.topology import Hop, Topology

Lane: TypeAlias = tuple[str, bool]
Distance: TypeAlias = tuple[float, int]
"""Seconds for a message, hops."""


def chain_of(topology: Topology, size_bytes: int, choose: Callable[..., Distance]) -> list[int]:
    """Return all ranks from rank 0 on, each followed by the remaining one at the distance chosen (min: the nearest).

    Ties go to the lowest.
    """
    order, left = [0], list(range(1, len(topology.workers)))
    while left:
        apart = {rank: distance(topology, order[-1], rank, size_bytes) for rank in left}
        wanted = choose(apart.values())
        order.append(next(rank for rank in left if apart[rank] == wanted))
        left.remove(order[-1])
    return order


def sites_of(topology: Topology, size_bytes: int) -> list[list[int]]:
    """Return the ranks of each site by the workers' `site`; unless all have one, clusters of nearest ranks.

    A rank's nearest ranks are in its cluster, and so are theirs. Nearness is the time of a message of *size_bytes*,
    then the number of links.
    """
    named = [topology.nodes[name].site for name in topology.workers]
    if all(named):
        return [[rank for rank, its in enumerate(named) if its == site] for site in dict.fromkeys(named)]
    ranks = range(len(named))
    cluster = list(ranks)  # the lowest rank known to be in its cluster
    for rank in ranks:
        distances = {other: distance(topology, rank, other, size_bytes) for other in ranks if other != rank}
        least = min(distances.values(), default=None)
        for other in (other for other, apart in distances.items() if apart == least):
            joined, into = sorted((cluster[rank], cluster[other]), reverse=True)
            cluster = [into if its == joined else its for its in cluster]
    return [[rank for rank in ranks if cluster[rank] == lowest] for lowest in sorted(set(cluster))]


def weights_of(topology: Topology, size_bytes: int, order: Sequence[int]) -> list[float]:
    """Return the shares for a bandwidth-aware all-reduce, by rank; equal ones if others would not help.

    They are those of a star whose links have the bandwidths with which each rank can send to all others at once. They
    are equal if a ring in this *order* would finish earlier on the real network, by the bytes that each link has to
    carry: then the network is slow where no share can help, such as between two sites.
    """
    names = [topology.workers[rank] for rank in order]
    size = len(names)
    by_rank = dict(zip(order, shares([_sending_Bps(topology, name) for name in names]), strict=True))
    found = [by_rank[rank] for rank in range(size)]
    if size < 3 or _sharing_s(topology, found, size_bytes) >= _ring_s(topology, names, size_bytes):
        return [1.0 / size] * size
    return found


def distance(topology: Topology, rank: int, other: int, size_bytes: int) -> Distance:
    """Return the distance from *rank* to *other*."""
    hops = topology.route(topology.workers[rank], topology.workers[other])
    slowest_Bps = min(hop.link.bandwidth_Bps for hop in hops)
    return _latency_s(hops) + size_bytes / slowest_Bps, len(hops)


def _sending_Bps(topology: Topology, name: str) -> float:
    """Return the bandwidth at which *name* can send to each of the others at once, over its own links."""
    others = [other for other in topology.workers if other != name]
    load = _load([(topology.route(name, other)[:1], 1.0) for other in others])
    return len(others) / max(load.values(), default=1.0)


def _sharing_s(topology: Topology, weights: Sequence[float], size_bytes: int) -> float:
    """Return the time of the busiest link if i sends j the part that j sums, and the sum that i made."""
    names = topology.workers
    flows = [
        (topology.route(a, b), (weights[i] + weights[j]) * size_bytes)
        for (i, a), (j, b) in permutations(enumerate(names), 2)
    ]
    last_piece = 1.0 + 1.0 / PIECES if 0.0 in weights else 1.0
    return 2.0 * max(_latency_s(hops) for hops, _ in flows) + last_piece * max(_load(flows).values())


def _ring_s(topology: Topology, names: Sequence[str], size_bytes: int) -> float:
    """Return the time of a ring in which each message shares its links with those of all other ranks."""
    flows = [(topology.route(a, b), size_bytes / len(names)) for a, b in pairwise([*names, names[0]])]
    load = _load(flows)
    latencies_s = np.array([_latency_s(hops) for hops, _ in flows])
    leaving_s = np.array([max(load[_lane(hop)] for hop in hops) for hops, _ in flows])
    starts_s = np.zeros(len(names))
    for _ in range(2 * (len(names) - 1)):
        left_s = starts_s + leaving_s
        starts_s = np.maximum(left_s, np.roll(left_s + latencies_s, 1))
    return float(starts_s.max())


def _latency_s(hops: Sequence[Hop]) -> float:
    return math.fsum(hop.link.latency_s for hop in hops)


def _load(flows: Sequence[tuple[Sequence[Hop], float]]) -> dict[Lane, float]:
    """Return the seconds that all *flows*, with their bytes, take on each direction of a link."""
    load: dict[Lane, float] = {}
    for hops, size_bytes in flows:
        for hop in hops:
            seconds, before_s = size_bytes / hop.link.bandwidth_Bps, load.get(_lane(hop), 0.0)
            load[_lane(hop)] = max(before_s, seconds) if hop.link.duplex == "free" else before_s + seconds
    return load


def _lane(hop: Hop) -> Lane:
    """Return what flows share: one direction of a link, a whole half-duplex link, or the link's medium."""
    medium = hop.link.medium
    return f"the medium {medium}" if medium else hop.link.name, hop.forward or hop.link.duplex == "half"
