"""The placement of a model on the remaining nodes, by the plan that placed it first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec.structs import replace as replaced

from simcluster.errors import UsageError
from simcluster.lm.plan.placements import Placement, rank
from simcluster.lm.plan.shelf import ClusterModelCosts
from simcluster.lm.plan.times import Lengths
from simcluster.lm.serving.placing import KINDS, layout_of_plan, limits_of, within
from simcluster.lm.serving.setup import PlacementLayout, Recovery, Setup
from simcluster.topology import Topology, loads


def recovery_of(
    topology: Topology, lengths: Lengths, requests: int = 1, cache_bytes: int | None = None, firsts: Sequence[int] = ()
) -> Recovery | None:
    """Return how nodes of *topology* place the model again; None for one without a document, or with one node."""
    if not topology.document or len(topology.workers) < 2:
        return None
    written = json.dumps(topology.document)
    return Recovery(written, lengths.prompt, lengths.output, requests, cache_bytes, tuple(firsts))


def placed_again(setup: Setup, members: Sequence[int]) -> Setup | None:
    """Return *setup* placed on the ranks *members*, which are numbered 0, 1, ... there; None if it does not fit.

    A placement whose nodes are all members stays, and so do the replicas that are left. Otherwise it is the plan's best
    one of the same kind, or else of any.
    """
    recovery, layout = setup.recovery, setup.layout
    assert recovery is not None, "a setup without it is never placed again"
    if set(layout.ranks) <= set(members):
        ranks = tuple(members.index(rank_) for rank_ in layout.ranks)
        return replaced(setup, layout=replaced(layout, ranks=ranks))
    left = without(loads(json.loads(recovery.topology)), members)
    before = setup.limits
    for layout in _layouts(setup, recovery, left, members):
        found = _allowed(layout, members, recovery.firsts)
        if found is None:
            continue
        settings = {name: getattr(before, name) for name in ("block_tokens", "chunk_tokens", "running", "guesses")}
        try:
            limits = limits_of(found, left, setup.shape, before.context, **settings)
            if recovery.cache_bytes is not None:
                limits = within(limits, found, setup.shape, recovery.cache_bytes)
        except UsageError:
            continue  # no room for a block of the cache
        if setup.layout.kind == found.kind == "replicas":  # as those have it whose caches stay
            limits = replace(limits, blocks=min(limits.blocks, before.blocks))
        return replaced(setup, layout=found, limits=limits)
    return None


def without(topology: Topology, members: Sequence[int]) -> Topology:
    """Return *topology* with the ranks *members* alone as workers; the other nodes still forward messages."""
    names = {topology.workers[rank_] for rank_ in members}
    nodes = {
        name: node if not node.is_worker or name in names else replace(node, device=None, is_host=True)
        for name, node in topology.nodes.items()
    }
    return replace(topology, nodes=nodes)


def _layouts(setup: Setup, recovery: Recovery, left: Topology, members: Sequence[int]) -> Iterator[PlacementLayout]:
    """Yield the placements on *left*, the best first: the replicas that are left, with others in place of those lost;
    then the plan's.
    """
    before = setup.layout
    planned = [layout_of_plan(one, left) for one in _candidates(setup, recovery, left)]
    stay = [members.index(rank_) for rank_ in before.ranks if rank_ in members]
    if before.kind == "replicas" and stay:
        others = [rank_ for one in planned[:1] if one.kind == before.kind for rank_ in one.ranks if rank_ not in stay]
        ranks = (*stay, *others)[: len(before.ranks)]
        prefill = sum(rank_ in members for rank_ in before.ranks[: before.prefill])
        yield PlacementLayout(before.kind, ranks, before.layers[: len(ranks)], prefill if prefill < len(ranks) else 0)
    yield from planned


def _candidates(setup: Setup, recovery: Recovery, left: Topology) -> list[Placement]:
    """Return the placements on *left*: those of the present kind first, then the others, each the fastest first."""
    layout, lengths = setup.layout, Lengths(recovery.prompt, recovery.answer)
    requests = max(recovery.requests, len(layout.ranks)) if layout.kind == "replicas" else recovery.requests
    shelf = ClusterModelCosts(left, setup.shape, lengths)
    found = [one for one in rank(shelf, requests).placements if one.kind in KINDS]
    return sorted(found, key=lambda one: one.kind != layout.kind)


def _allowed(layout: PlacementLayout, members: Sequence[int], firsts: Sequence[int]) -> PlacementLayout | None:
    """Return *layout* with a first node of *firsts*, None if it cannot have one. A pipeline keeps its order."""
    if not firsts or members[layout.ranks[0]] in firsts:
        return layout
    place = next((i for i, rank_ in enumerate(layout.ranks) if members[rank_] in firsts), None)
    if place is None or layout.kind == "pipeline":
        return None
    order = [place, *(i for i in range(len(layout.ranks)) if i != place)]
    prefill = layout.prefill if place < layout.prefill else 0  # no node that decodes comes first
    return PlacementLayout(
        layout.kind, tuple(layout.ranks[i] for i in order), tuple(layout.layers[i] for i in order), prefill
    )
