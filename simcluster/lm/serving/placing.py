"""Where a model's parts go: the plan's best placement, or one from a file; and the cache that then has room."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from simcluster.documents.yaml import load as load_yaml
from simcluster.errors import Problem, UsageError, nearest, raise_all
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.serve_replicas import Policy
from simcluster.lm.plan.placements import Kind, Placement, rank, replicas
from simcluster.lm.plan.shape import ModelShape
from simcluster.lm.plan.shelf import ClusterModelCosts
from simcluster.lm.plan.times import Lengths
from simcluster.lm.processor import engine_topology
from simcluster.lm.serving.setup import PlacementLayout
from simcluster.topology import Topology
from simcluster.units import format_size

KINDS: Final[tuple[Kind, ...]] = ("alone", "pipeline", "tensor", "replicas")
AUTO: Final = "auto"
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)


def layout_of(
    placement: str, topology: Topology, shape: ModelShape, lengths: Lengths, requests: int = 1
) -> PlacementLayout:
    """Return the placement of *shape* that *placement* asks for: auto, a kind, or the path of a file.

    Raises UsageError with all that is wrong, or with the memory that is missing.
    """
    if placement != AUTO and placement not in KINDS:
        return _of_file(placement, topology, shape)
    shelf = ClusterModelCosts(topology, shape, lengths)
    if placement == "replicas":
        return _replicas(shelf, requests)
    ranking = rank(shelf, requests)
    fitting = [one for one in ranking.placements if placement in (AUTO, one.kind)]
    if fitting:
        return layout_of_plan(fitting[0], topology)
    refused = [one for one in ranking.refused if placement in (AUTO, one.kind)]
    least = min((one for one in refused if one.missing_bytes), key=lambda one: one.missing_bytes or 0, default=None)
    why = "; ".join(one.why for one in refused if one.why) or "one that the topology has nodes for"
    if least is not None:
        why = f"{format_size(least.missing_bytes or 0)} more memory at {least.where}"
    raise UsageError(Problem("--placement", f"{placement} for {shape.name}", why))


def _replicas(shelf: ClusterModelCosts, requests: int) -> PlacementLayout:
    """Return the layout of replicas for *requests*, and for at least one on each node: equal nodes all have a part."""
    nodes = len(shelf.names)
    if (found := replicas(shelf, max(requests, nodes))) is not None:
        return layout_of_plan(found, shelf.topology)
    without = [one for one in rank(shelf, 1).refused if one.kind == "alone" and one.missing_bytes]
    with_room = nodes - len(without)
    if nodes < 2:
        expected = "a topology with two workers"
    elif with_room < 2:
        least = sorted(without, key=lambda one: one.missing_bytes or 0)[: 2 - with_room]
        expected = " and ".join(f"{format_size(one.missing_bytes or 0)} more memory at {one.where}" for one in least)
    else:
        expected = f"{AUTO}, since one node is faster than several; or a file that names the nodes"
    raise UsageError(Problem("--placement", f"replicas for {shelf.shape.name}", expected))


def layout_of_plan(placement: Placement, topology: Topology) -> PlacementLayout:
    """Return *placement* by rank."""
    ranks = {name: rank for rank, name in enumerate(topology.workers)}
    parts = placement.parts
    return PlacementLayout(
        placement.kind, tuple(ranks[part.node] for part in parts), tuple(part.layers for part in parts)
    )


def _of_file(path: str, topology: Topology, shape: ModelShape) -> PlacementLayout:
    """Return the placement in a file: its `kind`, and `nodes`, in order, with the layers of each in a pipeline.

    Of replicas, `prefill` may name those that only compute prompts.
    """
    if not os.path.isfile(path):
        expected = f"a placement: {nearest(path, (AUTO, *KINDS))}; or a file with one"
        raise UsageError(Problem("--placement", f"{path!r}: no such file and no such name", expected))
    document = load_yaml(path)
    data = document.data if isinstance(document.data, dict) else {}
    problems = [
        document.problem((key,), expected="kind, nodes or prefill", found=f"unknown key {key!r}", at_key=True)
        for key in data
        if key not in ("kind", "nodes", "prefill")
    ]
    kind, nodes = data.get("kind"), data.get("nodes")
    if kind not in KINDS:
        problems.append(document.problem(("kind",), expected=f"one of {', '.join(KINDS)}"))
        raise UsageError(problems)
    layers = _layers_of(kind, nodes, shape)
    if layers is None:
        form = "node names -> layers" if kind == "pipeline" else "a list of node names"
        problems.append(document.problem(("nodes",), expected=form))
        raise UsageError(problems)
    workers = {name: rank for rank, name in enumerate(topology.workers)}
    problems += [
        document.problem(("nodes",), expected=f"a worker: {nearest(str(name), workers)}", found=repr(name))
        for name in layers
        if name not in workers
    ]
    total = sum(layers.values())
    if kind == "pipeline" and total != shape.layers:
        problems.append(document.problem(("nodes",), expected=f"{shape.layers}", found=f"{total} layers in all"))
    if kind == "alone" and len(layers) != 1:
        problems.append(document.problem(("nodes",), expected="one", found=f"{len(layers)} nodes"))
    if kind == "tensor" and shape.kv_heads % len(layers):
        expected = f"a number that divides the {shape.kv_heads} KV heads"
        problems.append(document.problem(("nodes",), expected=expected, found=f"{len(layers)} nodes"))
    prefill = data.get("prefill", [])
    if not (isinstance(prefill, list) and len({*map(str, prefill)} & {*layers}) == len(prefill) < len(layers)):
        problems.append(document.problem(("prefill",), expected="a list of some of the nodes, not all"))
    elif prefill and kind != "replicas":
        problems.append(document.problem(("prefill",), expected="it with kind: replicas alone", at_key=True))
    raise_all(problems)
    order = sorted(layers, key=lambda name: name not in map(str, prefill))  # those that prefill come first
    return PlacementLayout(
        kind, tuple(workers[name] for name in order), tuple(layers[name] for name in order), len(prefill)
    )


def _layers_of(kind: Kind, nodes: Any, shape: ModelShape) -> Mapping[str, int] | None:
    """Return the layers of each node, in order; None if *nodes* has another form."""
    if kind == "pipeline":
        well = isinstance(nodes, dict) and nodes and all(type(n) is int and n > 0 for n in nodes.values())
        return nodes if well else None
    if not (isinstance(nodes, list) and nodes and len(set(map(str, nodes))) == len(nodes)):
        return None
    return dict.fromkeys(map(str, nodes), shape.layers)


def limits_of(
    layout: PlacementLayout, topology: Topology, shape: ModelShape, context: int, **settings: int
) -> EngineLimits:
    """Return the limits of an engine: as many blocks as fit the node of *layout* with the least room.

    Raises UsageError with what a node's memory lacks for its weights. *settings* are other fields of EngineLimits. As
    many batches are in flight as there are stages.
    """
    topology, limits = engine_topology(topology), EngineLimits(0, context, shape.vocabulary, **settings)
    counts, problems = [], []
    for place, rank_ in enumerate(layout.ranks):
        name = topology.workers[rank_]
        device = topology.nodes[name].device
        weights_bytes, token_bytes = held_bytes(layout, shape, place)
        if device is None or (memory := device.usable_bytes) is None:
            continue
        room = memory - weights_bytes
        if room < token_bytes * limits.block_tokens:
            found = f"{device.memory_words} of memory for {format_size(weights_bytes)} of weights"
            problems.append(Problem(f"node {name}", found, "room for them and a block of the cache"))
        counts.append(math.floor(room / (token_bytes * limits.block_tokens)))
    raise_all(problems)
    whole = limits.running * -(-context // limits.block_tokens)
    stages = len(layout.ranks) if layout.kind == "pipeline" else 1
    return replace(limits, blocks=min([whole, *counts]), batches=stages)


def within(limits: EngineLimits, layout: PlacementLayout, shape: ModelShape, cache_bytes: int) -> EngineLimits:
    """Return *limits* with at most *cache_bytes* of cache on every node of *layout*. Raise UsageError for no block."""
    most = max(held_bytes(layout, shape, place)[1] for place in range(len(layout.ranks)))
    blocks = math.floor(cache_bytes / (most * limits.block_tokens))
    if blocks < 1:
        expected = f"room for {limits.block_tokens} tokens, {math.ceil(most * limits.block_tokens)} B"
        raise UsageError(Problem("--cache", f"{cache_bytes} B", expected))
    return replace(limits, blocks=min(limits.blocks, blocks))


def policy_of(policy: Policy | None, layout: PlacementLayout) -> Policy:
    """Return *policy*, by default the first one. Raise UsageError if it is unknown, or if *layout* has no replicas."""
    if policy is None:
        return POLICIES[0]
    if policy not in POLICIES:
        raise UsageError(Problem("--policy", repr(policy), nearest(policy, POLICIES)))
    if layout.kind != "replicas":
        raise UsageError(Problem("--policy", policy, f"none with the placement {layout.kind}, which has no replicas"))
    return policy


def held_bytes(layout: PlacementLayout, shape: ModelShape, place: int) -> tuple[float, float]:
    """Return (bytes of weights, bytes of cache per token) of the *place*-th node of *layout*."""
    layers, count = layout.layers[place], len(layout.ranks)
    if layout.kind == "tensor":
        return shape.shard_bytes(1 / count), shape.cache_bytes(layers, 1) / count
    is_whole = layout.kind == "replicas"
    ends = shape.ends_bytes(is_whole or place == 0, is_whole or place == count - 1)
    return layers * shape.layer_bytes + ends, shape.cache_bytes(layers, 1)


def names_of(layout: PlacementLayout, topology: Topology) -> Sequence[str]:
    """Return the names of the nodes of *layout*, in its order."""
    return [topology.workers[rank_] for rank_ in layout.ranks]
