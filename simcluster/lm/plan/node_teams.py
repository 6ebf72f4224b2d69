"""Placements that combine two kinds of parallelism.

"hybrid" is a pipeline with tensor parallelism inside its stages. "pipelines" are replicas, each of
them a pipeline in one group of nodes: the nodes of a site, or those on one switch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.placements import Placement, Ranking, left_out, placed
from simcluster.lm.plan.search import PipelineSearch
from simcluster.topology import Topology

MOST_IN_TEAM: Final = 8
"""Limit on the number of nodes that share a stage."""

ALIKE: Final = 1.01
"""Nodes may share a stage if their speeds differ by at most this factor."""


def grouped(shelf: ClusterModelCosts, ranking: Ranking) -> Ranking:
    """Return *ranking* with the best "hybrid" and "pipelines" placements added, if any."""
    kinds = shelf.engine.kinds
    hybrid = _hybrid(shelf, ranking.requests) if "hybrid" in kinds else None
    pipelines = _pipelines(shelf, ranking.requests) if "pipelines" in kinds else None
    found = [one for one in (hybrid, pipelines) if one is not None]
    if not found:
        return ranking
    placements = sorted([*ranking.placements, *found], key=lambda one: -one.tokens_per_s)
    rates = ((name, rate or 0.0) for name, rate in ranking.left_out)
    return replace(ranking, placements=tuple(placements), left_out=left_out(shelf, placements, rates))


def _teams(shelf: ClusterModelCosts, names: Sequence[str], size: int) -> dict[str, tuple[str, ...]]:
    """Return team name -> nodes: teams of *size* equally fast nodes, and single remaining nodes.

    The nodes of a team are consecutive in the topology's file, except for nodes of another speed
    between them.
    """
    kinds: list[list[str]] = []
    for name in names:
        pace_s = shelf.pace(name, 1).layer_s
        like = next((kind for kind in kinds if _alike(pace_s, shelf.pace(kind[0], 1).layer_s)), None)
        if like is None:
            kinds.append([name])
        else:
            like.append(name)
    found: list[tuple[str, ...]] = []
    for kind in kinds:
        whole = len(kind) // size * size
        found += [tuple(kind[first : first + size]) for first in range(0, whole, size)]
        found += [(name,) for name in kind[whole:]]
    return {"+".join(team): team for team in sorted(found, key=lambda team: names.index(team[0]))}


def _alike(a: float, b: float) -> bool:
    return max(a, b) <= ALIKE * min(a, b)


def _sizes(shelf: ClusterModelCosts, names: Sequence[str]) -> Iterator[int]:
    """Yield the possible sizes of teams among *names*, which divide the number of KV heads."""
    heads = shelf.shape.kv_heads
    yield from (size for size in range(2, min(len(names), heads, MOST_IN_TEAM) + 1) if heads % size == 0)


def _hybrid(shelf: ClusterModelCosts, requests: int) -> Placement | None:
    """Return the fastest pipeline that has a stage of several nodes, all in one group."""
    groups = groups_of(shelf.topology) or [tuple(shelf.topology.workers)]
    sizes = sorted({size for group in groups for size in _sizes(shelf, group)})
    found = [{name: team for group in groups for name, team in _teams(shelf, group, n).items()} for n in sizes]
    shared = [teams for teams in found if len(teams) < len(shelf.topology.workers)]
    return _fastest(shelf, shared, requests, shares=True)


def _pipelines(shelf: ClusterModelCosts, requests: int) -> Placement | None:
    """Return replicas with a pipeline in each group. A faster group gets more of the *requests*."""
    groups = groups_of(shelf.topology)
    if requests < 2 or len(groups) < 2:
        return None
    first = [_best_in(shelf, group, -(-requests // len(groups)), 0) for group in groups]
    fitting = [(group, one.tokens_per_s) for group, one in zip(groups, first, strict=True) if one is not None]
    total = sum(rate for _, rate in fitting)
    left = requests
    found = list[Placement]()
    for group, rate in sorted(fitting, key=lambda one: -one[1]):
        share = min(left, max(1, round(left * rate / total)))
        total = total - rate
        one = _best_in(shelf, group, share, len(found)) if share else None
        if one is not None:
            left -= share
            found.append(one)
    if left or len(found) < 2 or all(len(one.parts) == 1 for one in found):
        return None
    rate = sum(one.tokens_per_s for one in found)
    parts = tuple(part for one in found for part in one.parts)
    sent = sum(one.sent_bytes * one.tokens_per_s for one in found) / rate
    slowest = max(one.token_s for one in found), max(one.ttft_s for one in found)
    return Placement("pipelines", parts, requests, rate, *slowest, sent)


def _best_in(shelf: ClusterModelCosts, group: tuple[str, ...], requests: int, replica: int) -> Placement | None:
    """Return the fastest placement of one whole model in *group*, or None if none fits."""
    found = (_teams(shelf, group, size) for size in (1, *_sizes(shelf, group)))
    return _fastest(shelf, found, requests, replica)


def _fastest(
    shelf: ClusterModelCosts,
    each: Iterable[Mapping[str, tuple[str, ...]]],
    requests: int,
    replica: int = 0,
    *,
    shares: bool = False,
) -> Placement | None:
    """Return the fastest placement over all divisions of the nodes into teams in *each*.

    If *shares*, consider only pipelines of several stages, of which at least one has several nodes.
    """
    found = []
    for teams in each:
        made = shelf.with_teams(teams)
        cuts = [
            cut
            for cut in PipelineSearch(made, requests).cuts
            if not shares or (len(cut.order) > 1 and any(len(teams[name]) > 1 for name in cut.order))
        ]
        if cuts:
            found.append(placed(made, min(cuts, key=lambda cut: cut.token_s), replica))
    return max(found, key=lambda one: one.tokens_per_s, default=None)


def groups_of(topology: Topology) -> list[tuple[str, ...]]:
    """Return the workers in groups, by site or else by switch; [] if neither gives two groups.

    Sites, or switches, define groups only if every worker has one.
    """
    switches: dict[str, str] = {}
    for link in topology.links:
        for node, other in ((link.a, link.b), (link.b, link.a)):
            if topology.nodes[node].is_worker and not topology.nodes[other].is_worker:
                switches.setdefault(node, other)
    for key in (lambda name: topology.nodes[name].site, switches.get):
        found: dict[str | None, list[str]] = {}
        for name in topology.workers:
            found.setdefault(key(name), []).append(name)
        if len(found) > 1 and None not in found:
            return [tuple(names) for names in found.values()]
    return []
