"""Find what schedules need to know about a network: near ranks, sites, slow links.

Schedules themselves cannot see the topology.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise, permutations

import numpy as np

from simcluster.collectives.bandwidth_aware import PIECES, shares
from simcluster.topology import Hop, Topology
from simcluster.topology.model.link import merged

Lane = tuple[str, bool]
Distance = tuple[float, int]
"""(time of a message in seconds, number of links)"""


def chain_of(topology: Topology, size_bytes: int, choose: Callable[..., Distance]) -> list[int]:
    """Return all ranks in a chain from rank 0: the nearest (or farthest) remaining rank comes next.

    *choose* is min or max, applied to distances. Ties go to the lowest rank.
    """
    order, left = [0], list(range(1, len(topology.workers)))
    while left:
        apart = {rank: distance(topology, order[-1], rank, size_bytes) for rank in left}
        wanted = choose(apart.values())
        order.append(next(rank for rank in left if apart[rank] == wanted))
        left.remove(order[-1])
    return order


@lru_cache(maxsize=8)  # all ranks of a simulation ask for the same numbers
def sites_of(topology: Topology, size_bytes: int) -> list[list[int]]:
    """Return the ranks of each site.

    If every worker has a `site`, these are the sites. Otherwise sites are clusters of near
    ranks: each rank is in one cluster with the ranks nearest to it. Distances are the time of a
    message of *size_bytes*, then the number of links.
    """
    named = [topology.nodes[name].site for name in topology.workers]
    if all(named):
        return [[rank for rank, its in enumerate(named) if its == site] for site in dict.fromkeys(named)]
    ranks = range(len(named))
    cluster = list(ranks)  # rank -> the lowest rank known to be in the same cluster
    for rank in ranks:
        distances = {other: distance(topology, rank, other, size_bytes) for other in ranks if other != rank}
        least = min(distances.values(), default=None)
        for other in (other for other, apart in distances.items() if apart == least):
            joined, into = sorted((cluster[rank], cluster[other]), reverse=True)
            cluster = [into if its == joined else its for its in cluster]
    return [[rank for rank in ranks if cluster[rank] == lowest] for lowest in sorted(set(cluster))]


@lru_cache(maxsize=8)
def weights_of(topology: Topology, size_bytes: int, names: tuple[str, ...]) -> list[float]:
    """Return each worker's share in a bandwidth-aware all-reduce among *names*, or equal ones if as
    fast.

    The shares are those for a star in which each rank's link has the bandwidth at which the rank
    can send to all others at once. The shares are equal if a ring in this order would be as fast
    on the real network, judged by the bytes that each link carries: then unequal shares cannot
    relieve the slowest part, such as a link between two sites.
    """
    size = len(names)
    found = shares([_sending_Bps(topology, name, names) for name in names])
    if size < 3 or _sharing_s(topology, names, found, size_bytes) >= _ring_s(topology, names, size_bytes):
        return [1.0 / size] * size
    return found


def distance(topology: Topology, rank: int, other: int, size_bytes: int) -> Distance:
    """Return (seconds of a message of *size_bytes* from *rank* to *other*, number of links)."""
    links = merged(topology.route(topology.workers[rank], topology.workers[other], size_bytes))
    slowest_Bps = min(link.bandwidth_Bps for link in links)
    return math.fsum(link.latency_s for link in links) + size_bytes / slowest_Bps, len(links)


def _sending_Bps(topology: Topology, name: str, names: Sequence[str]) -> float:
    """Return the total bandwidth at which *name* can send to all other *names* at once.

    Only the first link of each route counts.
    """
    others = [other for other in names if other != name]
    load = _load([(topology.route(name, other)[:1], 1.0) for other in others])
    return len(others) / max(load.values(), default=1.0)


def _sharing_s(topology: Topology, names: Sequence[str], weights: Sequence[float], size_bytes: int) -> float:
    """Return the time of an all-reduce among *names* in which each sums its own share.

    Rank i sends every rank j the part that j sums, and later the sum that i made. The time is that
    of the busiest link, plus the latencies.
    """
    flows = [
        (topology.route(a, b), (weights[i] + weights[j]) * size_bytes)
        for (i, a), (j, b) in permutations(enumerate(names), 2)
    ]
    last_piece = 1.0 + 1.0 / PIECES if 0.0 in weights else 1.0
    return 2.0 * max(_latency_s(hops) for hops, _ in flows) + last_piece * max(_load(flows).values())


def _ring_s(topology: Topology, names: Sequence[str], size_bytes: int) -> float:
    """Return the time of a ring all-reduce in which all ranks' messages share the links."""
    flows = [(topology.route(a, b), size_bytes / len(names)) for a, b in pairwise([*names, names[0]])]
    load = _load(flows)
    latencies_s = np.array([_latency_s(hops) for hops, _ in flows])
    leaving_s = np.array([max(load[hop.lane] for hop in hops) for hops, _ in flows])
    starts_s = np.zeros(len(names))
    for _ in range(2 * (len(names) - 1)):
        left_s = starts_s + leaving_s
        starts_s = np.maximum(left_s, np.roll(left_s + latencies_s, 1))
    return float(starts_s.max())


def _latency_s(hops: Sequence[Hop]) -> float:
    return math.fsum(link.latency_s for link in merged(hops))


def _load(flows: Sequence[tuple[Sequence[Hop], float]]) -> dict[Lane, float]:
    """Return (link, direction) -> the seconds that *flows* occupy it. Each flow is (hops, bytes)."""
    load: dict[Lane, float] = {}
    for hops, size_bytes in flows:
        for hop in hops:
            seconds = size_bytes * hop.share / hop.link.bandwidth_Bps
            before_s = load.get(hop.lane, 0.0)
            # On a "free" link, messages do not share the bandwidth: only the longest counts.
            load[hop.lane] = max(before_s, seconds) if hop.link.duplex == "free" else before_s + seconds
    return load
