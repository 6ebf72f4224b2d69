"""Place a model on a cluster, by a plan or from a file, and size the cache that then fits."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

from simcluster.documents.yaml import load as load_yaml
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.lm.engine.limits import EngineLimits
from simcluster.lm.engine.serve_replicas import Policy
from simcluster.lm.formats import Precision
from simcluster.lm.measured_formats import fastest, in_format
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.engines import DEFAULT, ENGINES, terms_of
from simcluster.lm.plan.placements import Kind, Placement, rank, replicas
from simcluster.lm.plan.shape import ModelShape, with_held_weights
from simcluster.lm.plan.times import Lengths
from simcluster.lm.serving.setup import PlacementLayout, Setup
from simcluster.lm.shared_machines import while_computing
from simcluster.spelling import nearest
from simcluster.topology import Topology
from simcluster.units import format_size

KINDS: Final[tuple[Kind, ...]] = ("alone", "pipeline", "tensor", "replicas")
AUTO: Final = "auto"
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)


def layout_of(
    placement: str, topology: Topology, shape: ModelShape, lengths: Lengths, requests: int = 1, engine: str = DEFAULT
) -> PlacementLayout:
    """Return the layout of a model of *shape* for *requests* of *lengths* at once.

    *placement* is "auto", a kind of placement, or the path of a file. Raise UsageError with all
    problems of the file, with the missing memory if the model does not fit, or if *engine* does not
    run in that placement.
    """
    terms = terms_of(engine)
    if placement != AUTO and placement not in KINDS:
        found = _of_file(placement, topology, shape)
        _check_kind(found.kind, engine)
        if found.prefill and engine != DEFAULT:
            raise UsageError("--placement", f"prefill with the engine {engine}", f"none, or {DEFAULT}")
        return found
    if placement != AUTO:
        _check_kind(placement, engine)
    shelf = ClusterModelCosts(topology, shape, lengths, engine=terms)
    if placement == "replicas":
        return _replicas(shelf, requests)
    ranking = rank(shelf, requests)
    fitting = [one for one in ranking.placements if placement in (AUTO, one.kind) and one.kind in terms.runs]
    if fitting:
        return layout_of_plan(fitting[0], topology)
    refused = [one for one in ranking.refused if placement in (AUTO, one.kind)]
    least = min((one for one in refused if one.missing_bytes), key=lambda one: one.missing_bytes or 0, default=None)
    why = "; ".join(one.why for one in refused if one.why) or "one that the topology has nodes for"
    if least is not None:
        why = f"{format_size(least.missing_bytes or 0)} more memory at {least.where}"
    raise UsageError("--placement", f"{placement} for {shape.name}", why)


def fastest_placed(topology: Topology, shape: ModelShape, placement: str = AUTO) -> Precision:
    """Return the fastest measured format that lets a model of *shape* fit with *placement*."""

    def check(name: Precision) -> None:
        layout_of(placement, in_format(topology, name), with_held_weights(shape, name), Lengths(1, 1))

    return fastest(topology, check)


def _check_kind(kind: str, engine: str) -> None:
    runs = ENGINES[engine].runs
    if kind not in runs:
        expected = f"{' or '.join(runs)}: its nodes hold whole models; or {DEFAULT}"
        raise UsageError("--placement", f"{kind} with the engine {engine}", expected)


def _replicas(shelf: ClusterModelCosts, requests: int) -> PlacementLayout:
    """Return the layout of replicas for *requests*, or for one request per node if that is more.

    For fewer requests than nodes, the plan would not use all nodes, even if they are equal. Raise
    UsageError if fewer than two replicas are possible or worthwhile.
    """
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
    raise UsageError("--placement", f"replicas for {shelf.shape.name}", expected)


def layout_of_plan(placement: Placement, topology: Topology) -> PlacementLayout:
    """Return *placement* with the ranks of nodes in *topology* instead of their names."""
    ranks = {name: rank for rank, name in enumerate(topology.workers)}
    parts = placement.parts
    return PlacementLayout(
        placement.kind, tuple(ranks[part.node] for part in parts), tuple(part.layers for part in parts)
    )


def _of_file(path: str, topology: Topology, shape: ModelShape) -> PlacementLayout:
    """Return the placement in the file *path*. Raise UsageError with all problems of the file.

    `kind` is the kind of placement. `nodes` lists the nodes in order; for a pipeline, it maps nodes
    to numbers of layers. For replicas, `prefill` may list nodes that only compute prompts.
    """
    if not os.path.isfile(path):
        expected = f"a placement: {nearest(path, (AUTO, *KINDS))}; or a file with one"
        raise UsageError("--placement", f"{path!r}: no such file and no such name", expected)
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
    # In a PlacementLayout, the replicas that only prefill come first.
    order = sorted(layers, key=lambda name: name not in map(str, prefill))
    return PlacementLayout(
        kind, tuple(workers[name] for name in order), tuple(layers[name] for name in order), len(prefill)
    )


def _layers_of(kind: Kind, nodes: Any, shape: ModelShape) -> Mapping[str, int] | None:
    """Return node -> number of layers, in order; None if *nodes* has the wrong form for *kind*."""
    if kind == "pipeline":
        well = isinstance(nodes, dict) and nodes and all(type(n) is int and n > 0 for n in nodes.values())
        return nodes if well else None
    if not (isinstance(nodes, list) and nodes and len(set(map(str, nodes))) == len(nodes)):
        return None
    return dict.fromkeys(map(str, nodes), shape.layers)


def limits_of(
    layout: PlacementLayout, topology: Topology, shape: ModelShape, context: int, **settings: int
) -> EngineLimits:
    """Return the limits of an engine. The node of *layout* with the least room limits the blocks.

    *settings* are other fields of EngineLimits. A pipeline has one batch in flight per stage. Raise
    UsageError if a node has no room for its weights and one block.
    """
    limits = EngineLimits(0, context, shape.vocabulary, **settings)
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
    # Running sequences at full length cannot use more blocks than this.
    whole = limits.running * -(-context // limits.block_tokens)
    stages = len(layout.ranks) if layout.kind == "pipeline" else 1
    return replace(limits, blocks=min([whole, *counts]), batches=stages)


def within(limits: EngineLimits, layout: PlacementLayout, shape: ModelShape, cache_bytes: int) -> EngineLimits:
    """Return *limits* with at most *cache_bytes* of cache on every node of *layout*.

    Raise UsageError if that is less than a block.
    """
    most = max(held_bytes(layout, shape, place)[1] for place in range(len(layout.ranks)))
    blocks = math.floor(cache_bytes / (most * limits.block_tokens))
    if blocks < 1:
        expected = f"room for {limits.block_tokens} tokens, {math.ceil(most * limits.block_tokens)} B"
        raise UsageError("--cache", f"{cache_bytes} B", expected)
    return replace(limits, blocks=min(limits.blocks, blocks))


def policy_of(policy: Policy | None, layout: PlacementLayout) -> Policy:
    """Return *policy*, or the first of POLICIES if it is None.

    Raise UsageError if *policy* is unknown, or if *layout* has no replicas.
    """
    if policy is None:
        return POLICIES[0]
    if policy not in POLICIES:
        raise UsageError("--policy", repr(policy), nearest(policy, POLICIES))
    if layout.kind != "replicas":
        raise UsageError("--policy", policy, f"none with the placement {layout.kind}, which has no replicas")
    return policy


def held_bytes(layout: PlacementLayout, shape: ModelShape, place: int) -> tuple[float, float]:
    """Return (bytes of weights, bytes of cache per token) of the node at *place* in *layout*."""
    layers, count = layout.layers[place], len(layout.ranks)
    if layout.kind == "tensor":
        return shape.shard_bytes(1 / count), shape.cache_bytes(layers, 1) / count
    is_whole = layout.kind == "replicas"
    ends = shape.ends_bytes(is_whole or place == 0, is_whole or place == count - 1)
    return layers * shape.layer_bytes + ends, shape.cache_bytes(layers, 1)


def while_answering(topology: Topology, setup: Setup, requests: int) -> Topology:
    """Return *topology* with the devices as the engine of *setup* uses them while it answers *requests*.

    Nodes of one machine slow each other down while they compute at once. If *requests* is 0, their
    number is unknown, and may be large.
    """
    layout = setup.layout
    topology = terms_of(setup.engine).topology(in_format(topology, setup.precision))
    is_one_at_a_time = requests == 1 and layout.kind != "tensor"
    return topology if is_one_at_a_time else while_computing(topology, names_of(layout, topology))


def names_of(layout: PlacementLayout, topology: Topology) -> Sequence[str]:
    """Return the names of the nodes of *layout*, in the order of *layout*."""
    return [topology.workers[rank_] for rank_ in layout.ranks]
