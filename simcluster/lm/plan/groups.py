"""Placements with two kinds of parallelism: tensor parallelism inside the stages of a pipeline, and replicas that are
pipelines, one in each group of nodes: a site, or the nodes on one switch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from simcluster.lm.plan.placements import Placement, PlacementPart, Ranking
from simcluster.lm.plan.search import PipelineSearch
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.plan.shelf import ClusterModelCosts, LayerCut
from simcluster.lm.plan.times import Lengths, NodePace, all_reduce, bytes_s
from simcluster.topology import Topology

MOST_IN_TEAM: Final = 8
"""The most nodes that share a stage."""

ALIKE: Final = 1.01
"""Nodes may share a stage if their speeds differ by no more than this factor."""


def grouped(shelf: ClusterModelCosts, ranking: Ranking) -> Ranking:
    """Return *ranking* with the placements of groups of nodes among its own."""
    found = [one for one in (_hybrid(shelf, ranking.requests), _pipelines(shelf, ranking.requests)) if one is not None]
    if not found:
        return ranking
    placements = sorted([*ranking.placements, *found], key=lambda one: -one.tokens_per_s)
    known: dict[str, float | None] = dict(ranking.left_out)
    for one in placements:
        for name in one.order:
            known[name] = max(known.get(name) or 0.0, one.tokens_per_s)
    used = placements[0].order
    left_out = tuple((name, known.get(name)) for name in shelf.topology.workers if name not in used)
    return replace(ranking, placements=tuple(placements), left_out=left_out)


class TeamModelCosts(ClusterModelCosts):
    """A ClusterModelCosts with stages on *teams*: name -> nodes, which share every matrix of the stage's layers."""

    def __init__(
        self, topology: Topology, shape: ModelShape, lengths: Lengths, teams: Mapping[str, tuple[str, ...]]
    ) -> None:
        super().__init__(topology, shape, lengths)
        self.teams, self.names = teams, list(teams)

    def _pace(self, name: str, requests: int, share: float = 1.0) -> NodePace:
        share = 1 / len(self.teams[name])
        paces = [super(TeamModelCosts, self)._pace(node, requests, share) for node in self.teams[name]]
        return self._together(name, paces, requests)

    def prefill_pace(self, name: str, share: float = 1.0) -> NodePace:
        share = 1 / len(self.teams[name])
        paces = [super(TeamModelCosts, self).prefill_pace(node, share) for node in self.teams[name]]
        return self._together(name, paces, self.lengths.prompt)

    def _together(self, name: str, paces: Sequence[NodePace], tokens: int) -> NodePace:
        """Return the pace of a team: that of its slowest node, and two all-reduces per layer."""
        reduce_s = 0.0
        if len(paces) > 1:
            reduce_s = all_reduce(self.topology, self.teams[name]).seconds(self.shape.hidden_bytes(tokens))
        slowest = [max(getattr(one, part) for one in paces) for part in ("start_s", "layer_s", "head_s")]
        return NodePace(slowest[0], slowest[1] + 2 * reduce_s, slowest[2])

    def pairs(self, a: str, b: str) -> list[tuple[str, str]]:
        """Return who sends to whom from team *a* to *b*: every node of *b* gets the whole activations from one."""
        here = self.teams[a]
        return [(here[i % len(here)], node) for i, node in enumerate(self.teams[b])]

    def _hop_s(self, a: str, b: str, size: float) -> float:
        pairs = [(here, there) for here, there in self.pairs(a, b) if here != there]
        if not pairs:
            return 0.0
        fixed_s = max(super(TeamModelCosts, self)._hop_s(here, there, 0.0) for here, there in pairs)
        return fixed_s + size * max(bytes_s(self.topology, pairs))

    def _room(self, name: str, first: bool, last: bool, requests: int) -> int:
        share = 1 / len(self.teams[name])
        ends, each = self.shape.ends_bytes(first, last), sum(self.held_bytes(1, False, False, requests))
        memories = [self.device(node).usable_bytes for node in self.teams[name]]
        rooms = [math.floor((memory / share - ends) / each) for memory in memories if memory is not None]
        return max(0, min([self.shape.layers, *rooms]))

    def placement(self, cut: LayerCut, replica: int = 0) -> Placement:
        """Return *cut* as a placement of nodes."""
        parts, last = [], len(cut.order) - 1
        for stage, (name, layers) in enumerate(zip(cut.order, cut.layers, strict=True)):
            share = 1 / len(self.teams[name])
            weights, cached = self.held_bytes(layers, stage == 0, stage == last, cut.requests)
            for node in self.teams[name]:
                held = share * weights, share * cached
                parts.append(PlacementPart(node, layers, share, *held, *self.memory(node), stage, replica))
        return Placement(
            "hybrid", tuple(parts), cut.requests, cut.tokens_per_s, cut.token_s, self.ttft_s(cut), self._sent(cut)
        )

    def _sent(self, cut: LayerCut) -> float:
        """Return the bytes that all nodes send for a token: every all-reduce 2 (n - 1) vectors, every hop one each."""
        inside = sum(4 * (len(self.teams[name]) - 1) * n for name, n in zip(cut.order, cut.layers, strict=True))
        return (inside + sum(len(self.teams[b]) for _, b in pairwise(cut.order))) * self.shape.hidden_bytes(1)


def _teams(shelf: ClusterModelCosts, names: Sequence[str], size: int) -> dict[str, tuple[str, ...]]:
    """Return *names* in teams of *size* equally fast nodes, next to each other in the file; the others alone."""
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
    """Yield the sizes of teams among *names* that divide the KV heads."""
    heads = shelf.shape.kv_heads
    yield from (size for size in range(2, min(len(names), heads, MOST_IN_TEAM) + 1) if heads % size == 0)


def _hybrid(shelf: ClusterModelCosts, requests: int) -> Placement | None:
    """Return the fastest pipeline with a stage that several nodes share; they are of one group, if there are any."""
    groups = groups_of(shelf.topology) or [tuple(shelf.topology.workers)]
    best: Placement | None = None
    for size in sorted({size for group in groups for size in _sizes(shelf, group)}):
        teams = {name: team for group in groups for name, team in _teams(shelf, group, size).items()}
        if all(len(team) == 1 for team in teams.values()):
            continue
        made = TeamModelCosts(shelf.topology, shelf.shape, shelf.lengths, teams)
        cuts = [
            cut
            for cut in PipelineSearch(made, requests).cuts
            if len(cut.order) > 1 and any(len(teams[name]) > 1 for name in cut.order)
        ]
        if cuts:
            found = made.placement(min(cuts, key=lambda cut: cut.token_s))
            best = found if best is None or found.tokens_per_s > best.tokens_per_s else best
    return best


def _pipelines(shelf: ClusterModelCosts, requests: int) -> Placement | None:
    """Return the placement with a pipeline in each group, which gets requests in proportion to its speed."""
    groups = groups_of(shelf.topology)
    if requests < 2 or len(groups) < 2:
        return None
    first = [_best_in(shelf, group, -(-requests // len(groups)), 0) for group in groups]
    fitting = [(group, one.tokens_per_s) for group, one in zip(groups, first, strict=True) if one is not None]
    total, left, found = sum(rate for _, rate in fitting), requests, list[Placement]()
    for group, rate in sorted(fitting, key=lambda one: -one[1]):
        share, total = min(left, max(1, round(left * rate / total))), total - rate
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
    """Return the fastest placement of the whole model inside *group*."""
    best: Placement | None = None
    for size in (1, *_sizes(shelf, group)):
        made = TeamModelCosts(shelf.topology, shelf.shape, shelf.lengths, _teams(shelf, group, size))
        cut = min(PipelineSearch(made, requests).cuts, key=lambda cut: cut.token_s, default=None)
        if cut is not None and (best is None or cut.tokens_per_s > best.tokens_per_s):
            best = made.placement(cut, replica)
    return best


def groups_of(topology: Topology) -> list[tuple[str, ...]]:
    """Return the workers by site; if all have one, by the switch that they are on; empty if that is one, too."""
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
