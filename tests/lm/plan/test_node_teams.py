"""Tensor parallelism inside the stages of a pipeline, and a pipeline in each group of nodes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch

from simcluster.collectives import all_reduce, subgroup
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts, LayerCut
from simcluster.lm.plan.node_teams import grouped, groups_of
from simcluster.lm.plan.placements import Placement, placed, rank
from simcluster.lm.plan.plan import make_plan
from simcluster.lm.plan.shape import PRESETS, ModelShape, with_weights
from simcluster.lm.plan.times import Lengths
from simcluster.topology import Device, Topology, load
from simcluster.transport import Transport
from tests.support import clusters

SEVENTY = with_weights(PRESETS["70b"], "q4")
SMALL = ModelShape("small", 4, 512, 8, 4, 64, 1024, 4096, False, 2.0)
FAST = Device("fast", 1e12, 100e9, memory_bytes=10**9)
SLOW = Device("slow", 1e11, 10e9, memory_bytes=10**9)


def best(topology: Topology, shape: ModelShape, requests: int, kind: str) -> Placement | None:
    shelf = ClusterModelCosts(topology, shape, Lengths())
    found = grouped(shelf, rank(shelf, requests)).placements
    return next((one for one in found if one.kind == kind), None)


def simulated_s(topology: Topology, layers: tuple[int, int]) -> float:
    """The seconds of a token over the teams n0, n1 and n2, n3: two all-reduces per layer, hops from rank to rank."""
    context = Lengths().context

    async def stage(node: Transport) -> float:
        last, count = node.rank >= 2, layers[node.rank // 2]
        team = subgroup(node, (2, 3) if last else (0, 1))
        hidden = torch.zeros(SMALL.width)
        if last:
            await node.recv(node.rank - 2, "hidden")
        for layer in range(count):
            await node.compute(lambda: None, cost=SMALL.layer_cost(1, 1, context, 0.5))
            for half in range(2):
                await all_reduce(team, hidden, f"{layer}/{half}", schedule="direct")
        if not last:
            await node.send(node.rank + 2, "hidden", hidden)
            await node.recv(node.rank + 2, "token")
        else:
            await node.compute(lambda: None, cost=SMALL.head_cost(1, 0.5))
            await node.send(node.rank - 2, "token", torch.zeros(1, dtype=torch.int32))
        return asyncio.get_running_loop().time()

    return float(max(clusters.run(topology, *[stage] * 4)[:2]))


def test_a_token_over_teams_takes_the_time_of_the_simulator() -> None:
    topology = clusters.star(4, 125e6, 50e-6, n0=FAST, n1=FAST, n2=SLOW, n3=SLOW)
    teams = ClusterModelCosts(topology, SMALL, Lengths(), {"a": ("n0", "n1"), "b": ("n2", "n3")})
    cut = teams.cut(("a", "b"), 1)
    assert cut is not None
    assert cut.layers == (3, 1)
    assert cut.token_s == pytest.approx(simulated_s(topology, (3, 1)), rel=1e-9)


def test_a_pair_holds_half_of_every_matrix_and_sends_two_all_reduces_per_layer() -> None:
    topology = clusters.star(3, 125e6, 50e-6, n0=FAST, n1=FAST, n2=FAST)
    teams = ClusterModelCosts(topology, SMALL, Lengths(), {"n0+n1": ("n0", "n1"), "n2": ("n2",)})
    made = placed(teams, LayerCut(("n0+n1", "n2"), (3, 1), 1, 1, 0.1))
    assert [(part.node, part.layers, part.share, part.stage) for part in made.parts] == [
        ("n0", 3, 0.5, 0),
        ("n1", 3, 0.5, 0),
        ("n2", 1, 1.0, 1),
    ]
    embedding, layer = SMALL.vocabulary * SMALL.width * 2.0, SMALL.layer_bytes
    assert made.parts[0].weights_bytes == 0.5 * (3 * layer + embedding)
    assert made.parts[2].weights_bytes == layer + embedding + SMALL.width * 2.0
    # Inside: 3 layers, 2 all-reduces, both ranks half a vector twice: 2 (2 - 1) vectors each. One hop to n2.
    assert made.sent_bytes == (3 * 2 * 2 + 1) * SMALL.width * 4


def test_the_70b_is_faster_if_two_macs_share_a_stage() -> None:
    whole = {f"nodes.mini{number}.usable_memory": "16 GB" for number in (1, 2, 3)}
    found = make_plan(load("smolcluster", overrides=whole), SEVENTY, Lengths()).rankings[0]
    first, second = found.placements[:2]
    assert (first.kind, second.kind) == ("hybrid", "pipeline")
    assert {part.node for part in first.parts} == {"mini1", "mini2", "mini3"}
    assert sum({part.stage: part.layers for part in first.parts}.values()) == 80
    assert all(part.missing_bytes == 0 for part in first.parts)
    assert {name for name, _ in found.left_out} == {"pi5", "pi4"}


def test_sites_that_hold_the_model_together_answer_many_requests_as_replicas() -> None:
    topology = load("halos-4-regions")
    found = best(topology, SEVENTY, 8, "pipelines")
    assert found is not None
    assert {part.replica for part in found.parts} == {0, 1, 2, 3}
    sites = [{topology.nodes[part.node].site for part in found.parts if part.replica == i} for i in range(4)]
    assert [len(names) for names in sites] == [1, 1, 1, 1]
    for replica in range(4):
        stages = {part.stage: part.layers for part in found.parts if part.replica == replica}
        assert sum(stages.values()) == 80
    assert best(topology, SEVENTY, 1, "pipelines") is None


@pytest.mark.parametrize("requests", [5, 9, 10, 11])
def test_requests_that_sites_cannot_share_evenly_all_have_one(requests: int) -> None:
    # 10 over four equal sites are 2.5 each, which rounds to 2: the last site takes what is left.
    found = best(load("halos-4-regions"), SEVENTY, requests, "pipelines")
    assert found is not None
    assert found.requests == requests


def test_only_equally_fast_nodes_share_a_stage() -> None:
    topology = clusters.star(4, 125e6, 50e-6, n0=FAST, n1=SLOW, n2=FAST, n3=SLOW)
    found = best(topology, SMALL, 1, "hybrid")
    assert found is not None
    stages = [
        [part.node for part in found.parts if part.stage == i] for i in range(max(p.stage for p in found.parts) + 1)
    ]
    assert all(set(names) <= {"n0", "n2"} or set(names) <= {"n1", "n3"} for names in stages)


def test_groups_are_sites_or_else_switches() -> None:
    wan = load("two-sites-wan")
    assert groups_of(wan) == [("a1", "a2", "a3"), ("b1", "b2", "b3")]
    nowhere = replace(wan, nodes={name: replace(node, site=None) for name, node in wan.nodes.items()})
    assert groups_of(nowhere) == [("a1", "a2", "a3"), ("b1", "b2", "b3")]
    assert groups_of(load("smolcluster")) == []
    assert groups_of(load("star-8-gigabit")) == []
