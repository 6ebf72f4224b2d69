"""The placements of a model on a cluster with their speed and memory, and those that do not fit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import combinations
from operator import attrgetter
from typing import Literal, TypeAlias

from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts, LayerCut
from simcluster.lm.plan.search import PipelineSearch
from simcluster.lm.plan.times import TOKEN_BYTES, NodePace, exchanged_bytes, gathered_s, tensor_s, told_s

Kind: TypeAlias = Literal["alone", "pipeline", "tensor", "replicas", "hybrid", "pipelines"]
"""The kind of a placement.

"hybrid" is tensor parallelism inside the stages of a pipeline. "pipelines" are replicas, each of
which has several nodes.
"""

MOST_SETS = 100
"""Limit on the sets of n nodes to try for tensor parallelism.

If there are more sets, only the n fastest nodes are tried.
"""


@dataclass(frozen=True)
class PlacementPart:
    """One node's *share* of every matrix of *layers* of a model, and the memory that it needs.

    Nodes with the same *stage* of the same *replica* share its layers. Each of them stores the
    whole table of embeddings.
    """

    node: str
    layers: int
    share: float
    weights_bytes: float
    cache_bytes: float
    memory_bytes: int | None
    usable_bytes: int | None
    stage: int = 0
    replica: int = 0

    @property
    def held_bytes(self) -> float:
        return self.weights_bytes + self.cache_bytes

    @property
    def missing_bytes(self) -> float:
        return max(0.0, self.held_bytes - self.usable_bytes) if self.usable_bytes is not None else 0.0


@dataclass(frozen=True)
class Placement:
    """A placement for *requests* at once. Each request gets a token every *token_s*.

    *ttft_s* is the time to the first token of a prompt on idle nodes. For replicas, both times are
    those of the slowest replica in use.
    """

    kind: Kind
    parts: tuple[PlacementPart, ...]
    requests: int
    tokens_per_s: float
    token_s: float
    ttft_s: float
    sent_bytes: float = 0.0
    """The bytes of activations that all nodes send per token; for several pipelines, the mean."""

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(part.node for part in self.parts)

    @property
    def nodes_together(self) -> int:
        """The number of nodes that work on one request."""
        if self.kind == "replicas":
            return 1
        return max(Counter(part.replica for part in self.parts).values())


@dataclass(frozen=True)
class ImpossiblePlacement:
    """A placement that is impossible, because *where* lacks *missing_bytes* of memory.

    If *missing_bytes* is None, *why* has the reason instead.
    """

    kind: Kind
    where: str
    missing_bytes: float | None
    why: str = ""


@dataclass(frozen=True)
class Ranking:
    """The possible placements for *requests* at once, the fastest first, and the *refused* ones.

    *left_out* are the nodes that the first placement does not use, each with the tokens per second
    of the best placement that does use the node, or None if no placement does.
    """

    requests: int
    placements: tuple[Placement, ...]
    refused: tuple[ImpossiblePlacement, ...]
    left_out: tuple[tuple[str, float | None], ...]

    @property
    def best_per_s(self) -> float:
        return self.placements[0].tokens_per_s if self.placements else 0.0


def rank(shelf: ClusterModelCosts, requests: int, like: Ranking | None = None) -> Ranking:
    """Return every sensible placement for *requests*, ranked by tokens per second.

    If *like* is given, the search for pipelines starts from that ranking of a similar cluster.
    """
    similar = like.placements if like is not None else ()
    kinds = shelf.engine.kinds
    search = PipelineSearch(shelf, requests, [one.order for one in similar if one.kind == "pipeline"])
    known = [cut for cut in search.cuts if len(cut.order) == 1 or "pipeline" in kinds]
    cuts = {k: cut for k, cut in search.best().items() if k == 1 or "pipeline" in kinds}
    alone = [cut for cut in known if len(cut.order) == 1]
    found = [placed(shelf, cut) for cut in (*alone, *(cut for k, cut in cuts.items() if k > 1))]
    sharded, refused = _tensor(shelf, requests) if "tensor" in kinds else ([], [])
    found += sharded
    copies = replicas(shelf, requests)
    if copies is not None and copies.requests == requests:
        found.append(copies)
    found.sort(key=lambda one: -one.tokens_per_s)
    rates = ((name, cut.tokens_per_s) for cut in known for name in cut.order)
    others = left_out(shelf, found, rates)
    return Ranking(requests, tuple(found), (*_too_large(shelf, requests, bool(cuts)), *refused), others)


def left_out(
    shelf: ClusterModelCosts, placements: Sequence[Placement], rates: Iterable[tuple[str, float]]
) -> tuple[tuple[str, float | None], ...]:
    """Return the nodes that the first of *placements* does not use, as in `Ranking.left_out`.

    *rates* has (node, tokens per second) of other placements.
    """
    with_it: dict[str, float] = {}
    for name, rate in (*rates, *((name, one.tokens_per_s) for one in placements for name in one.order)):
        with_it[name] = max(with_it.get(name, 0.0), rate)
    used = placements[0].order if placements else shelf.topology.workers
    return tuple((name, with_it.get(name) or None) for name in shelf.topology.workers if name not in used)


def _part(
    shelf: ClusterModelCosts, name: str, layers: int, ends: tuple[bool, bool], requests: int, share: float = 1.0
) -> PlacementPart:
    device = shelf.topology.device(name)
    held = shelf.held_bytes(layers, *ends, requests, share)
    return PlacementPart(name, layers, share, *held, device.memory_bytes, device.usable_bytes)


def placed(shelf: ClusterModelCosts, cut: LayerCut, replica: int = 0) -> Placement:
    """Return the placement that gives the layers of *cut* to the nodes of its teams."""
    parts = list[PlacementPart]()
    sent = 0
    last = len(cut.order) - 1
    for stage, (name, layers) in enumerate(zip(cut.order, cut.layers, strict=True)):
        team = shelf.teams[name]
        weights, cached = shelf.held_bytes(layers, stage == 0, stage == last, cut.requests)
        # Count vectors: an all-reduce sends 2 (n - 1), and a layer has two all-reduces; a hop sends
        # one to each node.
        sent += 4 * (len(team) - 1) * layers + (len(team) if stage else 0)
        for node in team:
            device = shelf.topology.device(node)
            share = 1 / len(team)
            room = device.memory_bytes, device.usable_bytes
            parts.append(PlacementPart(node, layers, share, share * weights, share * cached, *room, stage, replica))
    kind: Kind = "pipeline" if last else "alone"
    if len(parts) > len(cut.order):
        kind = "hybrid"
    times_s = cut.token_s, shelf.ttft_s(cut)
    return Placement(kind, tuple(parts), cut.requests, cut.tokens_per_s, *times_s, sent * shelf.shape.hidden_bytes(1))


def _too_large(shelf: ClusterModelCosts, requests: int, fits: bool) -> Iterator[ImpossiblePlacement]:
    """Yield each node that is too small for the model. Unless *fits*, also yield the whole cluster.

    *fits* says whether any placement of the whole model fits.
    """
    names = shelf.topology.workers
    layers = shelf.shape.layers
    for name in names:
        if missing := _part(shelf, name, layers, (True, True), requests).missing_bytes:
            yield ImpossiblePlacement("alone", name, missing)
    if not fits and len(names) > 1:
        order = sorted(names, key=lambda name: -(shelf.topology.device(name).usable_bytes or 0))[:layers]
        last = len(order) - 1
        rooms = sum(shelf.room(name, i == 0, i == last, requests) for i, name in enumerate(order))
        missing = (layers - rooms) * sum(shelf.held_bytes(1, False, False, requests))
        if missing > 0:
            yield ImpossiblePlacement("pipeline", f"{len(order)} nodes", missing)


def _tensor(shelf: ClusterModelCosts, requests: int) -> tuple[list[Placement], list[ImpossiblePlacement]]:
    """Return (placements, refused placements) with tensor parallelism.

    For each number of nodes that divides the number of KV heads, return the fastest set of nodes
    that fits, or else the set that lacks the least memory.
    """
    names = shelf.topology.workers
    heads = shelf.shape.kv_heads
    found: list[Placement] = []
    refused: list[ImpossiblePlacement] = []
    fast = sorted(names, key=lambda name: shelf.pace(name, requests).layer_s)
    fitting = [n for n in range(2, min(len(names), heads) + 1) if heads % n == 0]
    for n in fitting:
        few = math.comb(len(names), n) <= MOST_SETS
        sets = combinations(names, n) if few else [tuple(name for name in names if name in fast[:n])]
        made = [_sharded(shelf, nodes, requests) for nodes in sets]
        whole = [one for one in made if not any(part.missing_bytes for part in one.parts)]
        if whole:
            found.append(max(whole, key=lambda one: one.tokens_per_s))
        else:
            missing = attrgetter("missing_bytes")
            part = min((max(one.parts, key=missing) for one in made), key=missing)
            refused.append(ImpossiblePlacement("tensor", f"{n} nodes, on {part.node}", part.missing_bytes))
    odd = [str(n) for n in range(2, len(names) + 1) if n not in fitting]
    if odd:
        shown = ", ".join(odd[:8]) + (", ..." if len(odd) > 8 else "")
        refused.append(
            ImpossiblePlacement("tensor", f"{shown} nodes", None, f"{heads} KV heads cannot be shared evenly")
        )
    return found, refused


def _sharded(shelf: ClusterModelCosts, nodes: Sequence[str], requests: int) -> Placement:
    """Return the placement with tensor parallelism over *nodes*, even if it does not fit."""
    share = 1 / len(nodes)
    shape = shelf.shape
    crowd = shelf.crowd(nodes)
    paces = [shelf.pace(name, requests, share, crowd) for name in nodes]
    token_s = _tensor_s(shelf, paces, nodes, requests, requests)
    prompt = shelf.lengths.prompt
    paces = [shelf.prefill_pace(name, share, crowd) for name in nodes]
    ttft_s = _tensor_s(shelf, paces, nodes, 1, prompt)
    parts = tuple(_part(shelf, name, shape.layers, (True, True), requests, share) for name in nodes)
    sent = exchanged_bytes(shape, len(nodes))
    return Placement("tensor", parts, requests, requests / token_s, token_s, ttft_s, sent)


def _tensor_s(
    shelf: ClusterModelCosts, paces: Sequence[NodePace], nodes: Sequence[str], requests: int, tokens: int
) -> float:
    """Return the seconds of *tokens*, including sends to the other ranks and the gathering of logits."""
    logits = shelf.shape.logits_bytes(requests, 1 / len(nodes))
    ends_s = told_s(shelf.topology, nodes, TOKEN_BYTES * tokens) + gathered_s(shelf.topology, nodes, logits)
    return tensor_s(shelf.shape, paces, shelf.all_reduce_s(nodes, tokens), ends_s)


def replicas(shelf: ClusterModelCosts, requests: int) -> Placement | None:
    """Return the placement of whole models, or None if fewer than two nodes get requests.

    Each request goes to the node that would give it the fastest tokens, among the nodes with room
    for its cache. Requests for which no node has room are not counted.
    """
    layers = shelf.shape.layers
    counts: dict[str, int] = {}

    def offers(place: int, count: int) -> list[tuple[float, int]]:
        """Return [(seconds per token, *place*)] for *count* requests on that node; [] if full."""
        name = shelf.names[place]
        missing = _part(shelf, name, layers, (True, True), count).missing_bytes
        return [] if missing else [(shelf.pace(name, count).stage_s(layers, last=True), place)]

    heap = [offer for place in range(len(shelf.names)) for offer in offers(place, 1)]
    heapify(heap)
    for _ in range(requests):
        if heap:
            _, place = heappop(heap)
            name = shelf.names[place]
            counts[name] = counts.get(name, 0) + 1
            for offer in offers(place, counts[name] + 1):
                heappush(heap, offer)
    if len(counts) < 2:
        return None
    crowd = shelf.crowd(counts)
    times = [shelf.pace(name, count, 1.0, crowd).stage_s(layers, last=True) for name, count in counts.items()]
    rate = sum(count / taken_s for count, taken_s in zip(counts.values(), times, strict=True))
    ttft_s = max(shelf.prefill_pace(name).stage_s(layers, last=True) for name in counts)
    used = sorted(counts, key=shelf.names.index)
    parts = tuple(_part(shelf, name, layers, (True, True), counts[name]) for name in used)
    return Placement("replicas", parts, sum(counts.values()), rate, max(times), ttft_s)
