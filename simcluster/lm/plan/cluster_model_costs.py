"""The costs of a model on a topology: the pace and room of nodes, and the best split of layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import pairwise

from simcluster.lm.plan.engines import DEFAULT, ENGINES, EngineTerms
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.plan.times import TOKEN_BYTES, Lengths, NodePace, all_reduce_s, cycle_s, fixed_s, pace, pipeline_s
from simcluster.lm.shared_machines import device_among
from simcluster.topology import Topology
from simcluster.topology.model.busy_links import bytes_s


@dataclass(frozen=True)
class LayerCut:
    """A split of a model's layers into the stages of a pipeline: *layers* per team of *order*.

    Each request gets a token every *token_s*. The *requests* move through the stages in *groups*
    groups.
    """

    order: tuple[str, ...]
    layers: tuple[int, ...]
    requests: int
    groups: int
    token_s: float

    @property
    def tokens_per_s(self) -> float:
        return self.requests / self.token_s


class ClusterModelCosts:
    """The costs of *shape* on the workers of *topology*, for requests of *lengths*.

    Paces, hops and rooms are cached. *teams* maps names to nodes: each stage runs on a team, and
    the nodes of a team share every matrix of the stage's layers. If *teams* is None, each node is a
    team. *engine* has the terms in which engines differ.

    Methods that return a pace take a *crowd*: the nodes that compute at once, if these are more
    than one team.
    """

    def __init__(
        self,
        topology: Topology,
        shape: ModelShape,
        lengths: Lengths,
        teams: Mapping[str, tuple[str, ...]] | None = None,
        engine: EngineTerms = ENGINES[DEFAULT],
    ) -> None:
        self._given = topology
        self.topology = topology = engine.topology(topology)
        self.engine = engine
        self.shape = engine.shaped(shape)
        self.lengths = lengths
        self.teams = {name: (name,) for name in topology.workers} if teams is None else teams
        self.names = list(self.teams)
        self.pace = cache(self._pace)
        self.hop_s = cache(self._hop_s)
        self.room = cache(self._room)

    def with_teams(self, teams: Mapping[str, tuple[str, ...]]) -> ClusterModelCosts:
        """Return the costs of the same model on the same nodes, in *teams*."""
        return ClusterModelCosts(self._given, self.shape, self.lengths, teams, self.engine)

    def _pace(self, name: str, requests: int, share: float = 1.0, crowd: tuple[str, ...] = ()) -> NodePace:
        return self._together(name, (requests, 1, self.lengths.context), share, crowd)

    def prefill_pace(self, name: str, share: float = 1.0, crowd: tuple[str, ...] = ()) -> NodePace:
        """Return the pace of the team *name* for the whole prompt of one request."""
        return self._together(name, (1, self.lengths.prompt, 0), share, crowd)

    def _together(self, name: str, work: tuple[int, int, int], share: float, crowd: tuple[str, ...]) -> NodePace:
        """Return the pace of a team: that of its slowest node, plus two all-reduces per layer.

        *work* is (requests, new tokens of each, tokens before them).
        """
        team = self.teams[name]
        share /= len(team)
        devices = [device_among(self.topology, node, crowd or team) for node in team]
        paces = [pace(device, self.shape, *work, share) for device in devices]
        start_s, layer_s, head_s = map(max, zip(*map(astuple, paces), strict=True))
        if len(team) > 1:
            layer_s += 2 * self.all_reduce_s(team, work[0] * work[1])
        return NodePace(start_s, layer_s, head_s)

    def all_reduce_s(self, names: Sequence[str], tokens: int) -> float:
        """Return the seconds of an all-reduce over *names*, with the overhead of the engine."""
        overhead_s = self.engine.overhead_s(len(names), self.shape.width)
        return all_reduce_s(self.topology, names, self.shape.hidden_bytes(tokens)) + overhead_s

    def pairs(self, a: str, b: str) -> list[tuple[str, str]]:
        """Return (sender, receiver) pairs, with a sender in team *a* for every node of *b*.

        Each receiver gets all activations.
        """
        here = self.teams[a]
        return [(here[i % len(here)], node) for i, node in enumerate(self.teams[b])]

    def _hop_s(self, a: str, b: str, size: float) -> float:
        pairs = [(here, there) for here, there in self.pairs(a, b) if here != there]
        if not pairs:
            return 0.0
        before_s = self.engine.hop_s + max(fixed_s(self.topology, here, there, size) for here, there in pairs)
        return before_s + size * max(bytes_s(self.topology, pairs, size))

    def held_bytes(
        self, layers: int, first: bool, last: bool, requests: int, share: float = 1.0
    ) -> tuple[float, float]:
        """Return (weight bytes, cache bytes of *requests*) of a node with *share* of *layers*.

        *first* and *last* say whether the node also has the first or the last layer of the model.
        """
        weights = layers * self.shape.layer_bytes + self.shape.ends_bytes(first, last)
        if share < 1:
            weights = self.shape.shard_bytes(share)
        return weights, share * requests * self.shape.cache_bytes(layers, self.lengths.most)

    def _room(self, name: str, first: bool, last: bool, requests: int) -> int:
        """Return how many layers, with caches for *requests*, fit in the memory of team *name*."""
        share = 1 / len(self.teams[name])
        ends = self.shape.ends_bytes(first, last)
        each = sum(self.held_bytes(1, False, False, requests))
        memories = [self.topology.device(node).usable_bytes for node in self.teams[name]]
        rooms = [math.floor((memory / share - ends) / each) for memory in memories if memory is not None]
        return max(0, min([self.shape.layers, *rooms]))

    def cut(self, order: tuple[str, ...], requests: int) -> LayerCut | None:
        """Return the fastest split of the layers over *order*, or None if the model does not fit.

        For p stages, try 1, p, p + 1 and 2p groups of requests, and one group per request.
        """
        p, last = len(order), len(order) - 1
        rooms = [self.room(name, i == 0, i == last, requests) for i, name in enumerate(order)]
        if min(rooms) < 1 or sum(rooms) < self.shape.layers or p > self.shape.layers:
            return None
        best: LayerCut | None = None
        for groups in sorted({1, *(min(g, requests) for g in (p, p + 1, 2 * p, requests) if p > 1)}):
            together = math.ceil(requests / groups)
            crowd = self.crowd(order) if groups > 1 else ()
            paces = [self.pace(name, together, 1.0, crowd) for name in order]
            fixed = [one.stage_s(0, i == last) for i, one in enumerate(paces)]
            each = [one.layer_s for one in paces]
            total = self.shape.layers
            # A single group is in one stage at a time, so minimise the sum of times. With more
            # groups, minimise the slowest stage.
            layers = fastest(total, rooms, each) if groups == 1 else evenly(total, rooms, fixed, each)
            stages_s = [fixed[i] + layers[i] * each[i] for i in range(p)]
            token_s = cycle_s(stages_s, self.hops_s(order, together), self.back_s(order, together), groups)
            if best is None or token_s < best.token_s:
                best = LayerCut(order, tuple(layers), requests, groups, token_s)
        return best

    def crowd(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes of the teams *names*, which compute at once; () if no machine is shared."""
        return tuple(node for name in names for node in self.teams[name]) if self.topology.machines else ()

    def hops_s(self, order: Sequence[str], tokens: int) -> list[float]:
        """Return the seconds of each hop between neighbours in *order*; [0.0] for one team."""
        size = self.shape.hidden_bytes(tokens)
        return [self.hop_s(a, b, size) for a, b in pairwise(order)] or [0.0]

    def back_s(self, order: Sequence[str], requests: int) -> float:
        """Return the seconds to send a token per request from the last team to the first."""
        return self.hop_s(order[-1], order[0], TOKEN_BYTES * requests)

    def ttft_s(self, cut: LayerCut) -> float:
        """Return the seconds from a prompt's arrival at an idle cluster to its first token."""
        paces = [self.prefill_pace(name) for name in cut.order]
        last = len(cut.order) - 1
        stages_s = [one.stage_s(cut.layers[i], i == last) for i, one in enumerate(paces)]
        return pipeline_s(stages_s, self.hops_s(cut.order, self.lengths.prompt), self.back_s(cut.order, 1))


def fastest(layers: int, rooms: Sequence[int], each: Sequence[float]) -> list[int]:
    """Return the numbers of layers per stage that minimise the sum of the stages' times.

    Every stage has at least one layer. The other layers go to the stages that are fastest per
    layer, as far as they have room.
    """
    counts = [1] * len(rooms)
    left = layers - len(rooms)
    for i in sorted(range(len(rooms)), key=each.__getitem__):
        more = min(left, rooms[i] - 1)
        counts[i], left = counts[i] + more, left - more
    return counts


def evenly(layers: int, rooms: Sequence[int], fixed: Sequence[float], each: Sequence[float]) -> list[int]:
    """Return the numbers of layers per stage that minimise the time of the slowest stage.

    Stage i takes fixed[i] + n each[i] for n layers. The best split into fractions of layers gives a
    lower bound on the time. So every stage starts with as many whole layers as fit in that bound,
    and each further layer goes to the stage that then ends first. An exchange argument shows that
    this is the optimum.
    """
    stages = range(len(rooms))
    least_s = (layers + sum(fixed[i] / each[i] for i in stages)) / sum(1 / each[i] for i in stages)
    counts = [max(1, min(rooms[i], math.floor((least_s - fixed[i]) / each[i]))) for i in stages]
    while (left := layers - sum(counts)) > 0:
        i = min((i for i in stages if counts[i] < rooms[i]), key=lambda i: fixed[i] + (counts[i] + 1) * each[i])
        counts[i] += 1
    # The minimum of one layer per stage may have used too many layers: take some from the slowest
    # stages.
    for _ in range(-left):
        i = max((i for i in stages if counts[i] > 1), key=lambda i: fixed[i] + counts[i] * each[i])
        counts[i] -= 1
    return counts
