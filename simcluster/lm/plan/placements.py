"""The placements of a model on a shelf, each with its speed and memory, and those that do not fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import Literal, TypeAlias

from simcluster.lm.plan.search import PipelineSearch
from simcluster.lm.plan.shelf import ClusterModelCosts, LayerCut
from simcluster.lm.plan.times import TOKEN_BYTES, all_reduce, gathered_s, tensor_s, told_s

Kind: TypeAlias = Literal["alone", "pipeline", "tensor", "replicas", "hybrid", "pipelines"]
"""hybrid: tensor parallelism inside the stages of a pipeline. pipelines: replicas, each over several nodes."""

MOST_SETS = 100
"""Limit on the sets of nodes that tensor parallelism over one number of nodes tries."""


@dataclass(frozen=True)
class PlacementPart:
    """One node's part of a model: *layers* of it, *share* of every matrix, and what that takes of its memory.

    Nodes with one *stage* of one *replica* share its layers; each of them has the whole table of embeddings.
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
    """A placement for *requests* at once. Each gets a token per *token_s*; *ttft_s* is that of a prompt on idle nodes.

    For replicas, both are those of the slowest one in use.
    """

    kind: Kind
    parts: tuple[PlacementPart, ...]
    requests: int
    tokens_per_s: float
    token_s: float
    ttft_s: float
    sent_bytes: float = 0.0
    """The bytes of activations that all nodes send for a token, of hybrid and pipelines; of replicas, the mean."""

    @property
    def order(self) -> tuple[str, ...]:
        return tuple(part.node for part in self.parts)


@dataclass(frozen=True)
class ImpossiblePlacement:
    """A placement that is impossible: *missing_bytes* of memory at *where*, or none and the *why*."""

    kind: Kind
    where: str
    missing_bytes: float | None
    why: str


@dataclass(frozen=True)
class Ranking:
    """The placements for *requests* at once, the fastest first; those refused; and the nodes that the first leaves out,
    each with the tokens per second of the best placement that uses it, or None if there is none.
    """

    requests: int
    placements: tuple[Placement, ...]
    refused: tuple[ImpossiblePlacement, ...]
    left_out: tuple[tuple[str, float | None], ...]

    @property
    def best_per_s(self) -> float:
        return self.placements[0].tokens_per_s if self.placements else 0.0


def rank(shelf: ClusterModelCosts, requests: int, like: Ranking | None = None) -> Ranking:
    """Return every sensible placement for *requests*, ranked by tokens per second; *like*: that of a similar shelf."""
    similar = like.placements if like is not None else ()
    search = PipelineSearch(shelf, requests, [one.order for one in similar if one.kind == "pipeline"])
    cuts = search.best()
    alone = [cut for cut in search.cuts if len(cut.order) == 1]
    found = [_of_cut(shelf, cut) for cut in (*alone, *(cut for k, cut in cuts.items() if k > 1))]
    sharded, refused = _tensor(shelf, requests)
    found += sharded
    copies = replicas(shelf, requests)
    if copies is not None and copies.requests == requests:
        found.append(copies)
    found.sort(key=lambda one: -one.tokens_per_s)
    with_it: dict[str, float] = {}
    tried: list[LayerCut | Placement] = [*search.cuts, *found]
    for one in tried:
        for name in one.order:
            with_it[name] = max(with_it.get(name, 0.0), one.tokens_per_s)
    used = found[0].order if found else ()
    left_out = tuple((name, with_it.get(name)) for name in shelf.topology.workers if found and name not in used)
    return Ranking(requests, tuple(found), (*_too_large(shelf, requests, bool(cuts)), *refused), left_out)


def _part(
    shelf: ClusterModelCosts, name: str, layers: int, ends: tuple[bool, bool], requests: int, share: float = 1.0
) -> PlacementPart:
    weights, cached = shelf.held_bytes(layers, *ends, requests, share)
    return PlacementPart(name, layers, share, weights, cached, *shelf.memory(name))


def _of_cut(shelf: ClusterModelCosts, cut: LayerCut) -> Placement:
    last = len(cut.order) - 1
    parts = tuple(
        _part(shelf, name, cut.layers[i], (i == 0, i == last), cut.requests) for i, name in enumerate(cut.order)
    )
    kind: Kind = "pipeline" if last else "alone"
    return Placement(kind, parts, cut.requests, cut.tokens_per_s, cut.token_s, shelf.ttft_s(cut))


def _too_large(shelf: ClusterModelCosts, requests: int, fits: bool) -> Iterator[ImpossiblePlacement]:
    """Yield the nodes that cannot hold the model alone, and the whole shelf unless the model *fits* somewhere."""
    names, layers = shelf.topology.workers, shelf.shape.layers
    for name in names:
        if missing := _part(shelf, name, layers, (True, True), requests).missing_bytes:
            yield ImpossiblePlacement("alone", name, missing, "")
    if not fits and len(names) > 1:
        order = sorted(names, key=lambda name: -(shelf.device(name).usable_bytes or 0))[:layers]
        last = len(order) - 1
        rooms = sum(shelf.room(name, i == 0, i == last, requests) for i, name in enumerate(order))
        missing = (layers - rooms) * sum(shelf.held_bytes(1, False, False, requests))
        if missing > 0:
            yield ImpossiblePlacement("pipeline", f"{len(order)} nodes", missing, "")


def _tensor(shelf: ClusterModelCosts, requests: int) -> tuple[list[Placement], list[ImpossiblePlacement]]:
    """Return, for each number of nodes that divides the KV heads, the fastest set of them, or what is missing."""
    names, heads = shelf.topology.workers, shelf.shape.kv_heads
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
            part = min((max(one.parts, key=_missing) for one in made), key=_missing)
            refused.append(ImpossiblePlacement("tensor", f"{n} nodes, on {part.node}", part.missing_bytes, ""))
    odd = [str(n) for n in range(2, len(names) + 1) if n not in fitting]
    if odd:
        shown = ", ".join(odd[:8]) + (", ..." if len(odd) > 8 else "")
        refused.append(
            ImpossiblePlacement("tensor", f"{shown} nodes", None, f"{heads} KV heads cannot be shared evenly")
        )
    return found, refused


def _missing(part: PlacementPart) -> float:
    return part.missing_bytes


def _sharded(shelf: ClusterModelCosts, nodes: Sequence[str], requests: int) -> Placement:
    share, shape = 1 / len(nodes), shelf.shape
    reduce = all_reduce(shelf.topology, nodes)
    paces = [shelf.pace(name, requests, share) for name in nodes]
    token_s = tensor_s(shape, paces, reduce, _ends_s(shelf, nodes, requests, requests), requests)
    prompt, paces = shelf.lengths.prompt, [shelf.prefill_pace(name, share) for name in nodes]
    ttft_s = tensor_s(shape, paces, reduce, _ends_s(shelf, nodes, 1, prompt), prompt)
    parts = tuple(_part(shelf, name, shape.layers, (True, True), requests, share) for name in nodes)
    return Placement("tensor", parts, requests, requests / token_s, token_s, ttft_s)


def _ends_s(shelf: ClusterModelCosts, nodes: Sequence[str], requests: int, tokens: int) -> float:
    """Return the seconds of *tokens* from the first of *nodes* to the others, and of the logits of *requests* back."""
    logits = shelf.shape.logits_bytes(requests, 1 / len(nodes))
    return told_s(shelf.topology, nodes, TOKEN_BYTES * tokens) + gathered_s(shelf.topology, nodes, logits)


def replicas(shelf: ClusterModelCosts, requests: int) -> Placement | None:
    """Return the placement with the model on several nodes; None if it fits on one at most.

    Each request goes where its tokens come soonest, among the nodes with room for its cache. Those beyond all rooms are
    left out.
    """
    layers = shelf.shape.layers
    counts: dict[str, int] = {}

    def offers(place: int, count: int) -> list[tuple[float, int]]:
        """Return when tokens come from the node at *place* as one of *count* requests; nothing without room."""
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
    times = [shelf.pace(name, count).stage_s(layers, last=True) for name, count in counts.items()]
    rate = sum(count / taken_s for count, taken_s in zip(counts.values(), times, strict=True))
    ttft_s = max(shelf.prefill_pace(name).stage_s(layers, last=True) for name in counts)
    used = sorted(counts, key=shelf.names.index)
    parts = tuple(_part(shelf, name, layers, (True, True), counts[name]) for name in used)
    return Placement("replicas", parts, sum(counts.values()), rate, max(times), ttft_s)
