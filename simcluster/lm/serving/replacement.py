"""Place a model again on the remaining nodes, with the planner that placed it first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from msgspec.structs import replace as replaced

from simcluster.errors import UsageError
from simcluster.lm.measured_formats import in_format
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.engines import ENGINES
from simcluster.lm.plan.placements import Placement, rank
from simcluster.lm.plan.times import Lengths
from simcluster.lm.serving.placement import layout_of_plan, limits_of, within
from simcluster.lm.serving.setup import PlacementLayout, Recovery, Setup
from simcluster.topology import Topology, loads


def recovery_of(
    topology: Topology, lengths: Lengths, requests: int = 1, cache_bytes: int | None = None, firsts: Sequence[int] = ()
) -> Recovery | None:
    """Return the Recovery for *topology*, from which nodes place the model again after a loss.

    Return None if *topology* has only one worker, or lacks the document that the nodes need.
    """
    if not topology.document or len(topology.workers) < 2:
        return None
    written = json.dumps(topology.document)
    return Recovery(written, lengths.prompt, lengths.output, requests, cache_bytes, tuple(firsts))


def placed_again(setup: Setup, members: Sequence[int]) -> Setup | None:
    """Return *setup* with a placement on the ranks *members*, or None if the model does not fit.

    The new placement has indices of *members* as ranks. A placement stays as it is if all its nodes
    are members. Replicas that are members stay. Otherwise the new placement is the plan's best one
    of the same kind or, if there is none, of any kind.
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
        settings = {
            name: getattr(before, name) for name in ("block_tokens", "chunk_tokens", "running", "guesses", "kept")
        }
        try:
            limits = limits_of(found, left, setup.shape, before.context, **settings)
            if recovery.cache_bytes is not None:
                limits = within(limits, found, setup.shape, recovery.cache_bytes)
        except UsageError:
            continue  # no room for even one block of cache
        if setup.layout.kind == found.kind == "replicas":
            # Replicas that stay keep their schedulers only if the number of blocks does not grow.
            limits = replace(limits, blocks=min(limits.blocks, before.blocks))
        return replaced(setup, layout=found, limits=limits)
    return None


def without(topology: Topology, members: Sequence[int]) -> Topology:
    """Return *topology* with only the ranks *members* as workers; others only forward messages."""
    names = {topology.workers[rank_] for rank_ in members}
    nodes = {
        name: node if not node.is_worker or name in names else replace(node, device=None, is_host=True)
        for name, node in topology.nodes.items()
    }
    return replace(topology, nodes=nodes)


def _layouts(setup: Setup, recovery: Recovery, left: Topology, members: Sequence[int]) -> Iterator[PlacementLayout]:
    """Yield the placements to try on *left*, the best first.

    For replicas, the first placement keeps the remaining replicas and replaces the lost ones. The
    plan's placements follow.
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
    """Return the plan's placements on *left*, with those of the present kind first.

    Placements of the same kind, and those of other kinds, are in order of speed.
    """
    layout = setup.layout
    lengths = Lengths(recovery.prompt, recovery.answer)
    requests = max(recovery.requests, len(layout.ranks)) if layout.kind == "replicas" else recovery.requests
    engine = ENGINES[setup.engine]
    shelf = ClusterModelCosts(in_format(left, setup.precision), setup.shape, lengths, engine=engine)
    found = [one for one in rank(shelf, requests).placements if one.kind in engine.runs]
    return sorted(found, key=lambda one: one.kind != layout.kind)


def _allowed(layout: PlacementLayout, members: Sequence[int], firsts: Sequence[int]) -> PlacementLayout | None:
    """Return *layout* with one of *firsts* as its first node, or None if that is impossible.

    *firsts* are ranks of the cluster. Any node may come first, except in a pipeline, where nodes
    are in the order of the layers.
    """
    if not firsts or members[layout.ranks[0]] in firsts:
        return layout
    place = next((i for i, rank_ in enumerate(layout.ranks) if members[rank_] in firsts), None)
    if place is None or layout.kind == "pipeline":
        return None
    order = [place, *(i for i in range(len(layout.ranks)) if i != place)]
    # A node that only decodes cannot be first: each replica then prefills and decodes.
    prefill = layout.prefill if place < layout.prefill else 0
    return PlacementLayout(
        layout.kind, tuple(layout.ranks[i] for i in order), tuple(layout.layers[i] for i in order), prefill
    )
