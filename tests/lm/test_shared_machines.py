"""Processes of one machine divide its memory bus, in the plan and in the simulator."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.placements import rank
from simcluster.lm.plan.shape import PRESETS
from simcluster.lm.plan.times import Lengths
from simcluster.lm.request import Request
from simcluster.lm.serving.placement import layout_of, limits_of
from simcluster.lm.serving.run import answer_all
from simcluster.lm.serving.setup import Setup
from simcluster.lm.shared_machines import device_among, while_computing
from simcluster.topology import Topology, load, loads

SMOL, LENGTHS = PRESETS["smollm2"], Lengths(16, 8)
CROWDED = """
machines: {m: {cores: 4}}
nodes:
  a: {flops: 12 GFLOP/s, memory_bandwidth: 8 GB/s, machine: m}
  b: {device: raspberry-pi-5, machine: m}
  c: {flops: 12 GFLOP/s, memory_bandwidth: 8 GB/s}
links: [{between: [a, b], type: loopback}, {between: [a, c], type: ethernet-1g}]
"""


def test_nodes_of_a_machine_divide_its_bandwidth_and_its_cores_if_those_are_too_few() -> None:
    cluster = loads(CROWDED)
    alone = device_among(cluster, "b", ["b", "c"])
    assert alone is cluster.device("b")
    # Two of the machine's nodes compute. The Pi's four threads and as many others want eight of four cores.
    both = device_among(cluster, "b", ["a", "b", "c"])
    assert both.memory_bandwidth_Bps == cluster.device("b").memory_bandwidth_Bps / 2
    assert both.flops_per_s == cluster.device("b").flops_per_s / 2
    # One thread each: four cores are enough.
    a = device_among(cluster, "a", ["a", "b"])
    assert (a.memory_bandwidth_Bps, a.flops_per_s) == (4e9, 12e9)
    assert device_among(cluster, "c", ["a", "b", "c"]) is cluster.device("c")
    assert while_computing(cluster, ["a", "b", "c"]).device("a") == a
    assert while_computing(load("smolcluster"), ["mini1", "mini2"]) == load("smolcluster")


def test_one_request_is_faster_on_one_process_of_a_machine_than_on_several() -> None:
    cluster = load("this-machine")
    best = rank(ClusterModelCosts(cluster, SMOL, LENGTHS), 1).placements[0]
    assert best.kind == "alone"
    assert layout_of("auto", cluster, SMOL, LENGTHS).kind == "alone"
    # Nodes with a machine each have a bus each, and share the reading of the weights.
    own = {name: {"machine": None} for name in "abc"}
    apart = load("this-machine", overrides={f"nodes.{name}.machine": None for name in own} | {"machines": None})
    assert rank(ClusterModelCosts(apart, SMOL, LENGTHS), 1).placements[0].kind == "tensor"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["alone", "tensor"])
def test_the_simulator_and_the_plan_agree_on_a_shared_machine(kind: str) -> None:
    cluster = load("this-machine")
    placed = next(one for one in rank(ClusterModelCosts(cluster, SMOL, LENGTHS), 1).placements if one.kind == kind)
    # Messages of a machine also wait for its cores, which the closed form does not count.
    rel = 1e-9 if kind == "alone" else 2e-3
    assert times_s(cluster, kind)[LENGTHS.output // 2] == pytest.approx(placed.token_s, rel=rel)


def times_s(cluster: Topology, kind: str) -> list[float]:
    """The seconds between the tokens of a request, in the simulator."""
    layout = layout_of(kind, cluster, SMOL, LENGTHS)
    limits = limits_of(layout, cluster, SMOL, 1000)
    request = Request("0", (0,) * LENGTHS.prompt, LENGTHS.output)
    setup = Setup("", SMOL, "f32", "none", layout, limits, False, requests=(request,))
    return [b - a for a, b in pairwise(answer_all(setup, cluster).answers["0"].times_s)]
