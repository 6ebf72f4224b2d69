"""The closed forms: by hand, against the simulator, and against published measurements."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from experiments.papers.inference.more_devices import MEASURED_MS, predicted_ms
from simcluster.lab.bench.collective import bench_collective
from simcluster.lm.plan.cluster_model_costs import ClusterModelCosts
from simcluster.lm.plan.shape import PRESETS, ModelShape
from simcluster.lm.plan.times import (
    TOKEN_BYTES,
    Lengths,
    NodePace,
    all_reduce_s,
    cycle_s,
    exchanged_bytes,
    hop_s,
    pace,
    pipeline_s,
    tensor_s,
)
from simcluster.topology import Device, Topology, load
from simcluster.transport import Cost, Transport
from tests.support import clusters

TINY = ModelShape("tiny", 4, 8, 4, 2, 2, 16, 32, False, 2.0)


@pytest.mark.parametrize(("n", "kilobytes"), [(2, 2048), (4, 6144), (8, 14336)])
def test_tensor_parallelism_of_llama_3_8b_sends_these_bytes_per_token(n: int, kilobytes: int) -> None:
    # 2 (n - 1) x 2 all-reduces x 32 layers x 4096 numbers of 4 bytes; a kB of 1024 bytes.
    assert exchanged_bytes(PRESETS["8b"], n) == kilobytes * 1024


def test_a_layer_takes_the_slower_of_arithmetic_and_memory_and_its_overhead() -> None:
    # 592 weights of 2 bytes and 10 tokens of 32 bytes in the cache: 1504 bytes. 1152 FLOPs of products for the token
    # and 10 pairs of 32 FLOPs: 1472 FLOPs.
    device = Device("d", flops_per_s=1e6, memory_bandwidth_Bps=1e6, work_overhead_s=1.0, operator_overhead_s=0.01)
    slow = pace(device, TINY, 1, 1, 9)
    assert slow.layer_s == pytest.approx(1504e-6 + 18 * 0.01, rel=1e-9)
    # The logits, a piece of work of their own: a norm of 8 weights and 32 x 8 weights, 2 bytes each.
    assert slow.head_s == pytest.approx(1.0 + 528e-6 + 2 * 0.01, rel=1e-9)
    assert slow.stage_s(3, last=True) == pytest.approx(1.0 + 3 * slow.layer_s + slow.head_s, rel=1e-9)
    # With 100 times the bandwidth the arithmetic decides.
    assert pace(replace(device, memory_bandwidth_Bps=1e8), TINY, 1, 1, 9).layer_s == pytest.approx(1472e-6 + 0.18)
    # Twice the share, twice the time; the operators are as many.
    half = pace(device, TINY, 1, 1, 9, share=0.5)
    assert half.layer_s == pytest.approx(752e-6 + 0.18, rel=1e-9)


def test_one_request_passes_every_stage_and_hop_and_many_wait_for_the_slowest() -> None:
    stages_s, hops_s, back_s = [0.3, 0.5], [0.1], 0.05
    assert pipeline_s(stages_s, hops_s, back_s) == pytest.approx(0.95, rel=1e-9)
    assert cycle_s(stages_s, hops_s, back_s, 1) == pytest.approx(0.95, rel=1e-9)
    # 10 requests in flight: the stage of 0.5 s is always busy, and each gets a token in 10 x 0.5 s.
    assert cycle_s(stages_s, hops_s, back_s, 10) == pytest.approx(5.0, rel=1e-9)
    assert cycle_s([0.1, 0.2], [0.7], back_s, 10) == pytest.approx(7.0, rel=1e-9)


def test_tensor_parallelism_waits_for_the_slowest_rank_and_two_all_reduces_per_layer() -> None:
    # The slower rank: 4 x 0.02 + 0.1, and 0.5 for the logits. 2 x 4 all-reduces of 8 numbers of
    # 4 bytes: 0.001 + 32 x 1e-5.
    paces = [NodePace(0.0, 0.01, 0.1), NodePace(0.0, 0.02, 0.1)]
    assert tensor_s(TINY, paces, 0.00132, 0.5) == pytest.approx(0.68 + 8 * 0.00132, rel=1e-9)


@pytest.mark.parametrize("name", ["star-8-gigabit", "smolcluster", "thunderbolt-mesh-4", "two-sites-wan"])
def test_an_all_reduce_takes_the_time_that_the_simulator_gives_the_direct_schedule(name: str) -> None:
    # 1,680,000 numbers can be cut into 4, 5, 6 and 8 equal parts.
    topology, size = load(name), 4 * 1_680_000
    simulated_s = bench_collective("all_reduce", "direct", topology, size, {})["elapsed_s"]
    assert all_reduce_s(topology, topology.workers, size) == pytest.approx(simulated_s, rel=1e-9)


def circulated_s(
    topology: Topology, shelf: ClusterModelCosts, layers: Sequence[int], groups: int, rounds: int
) -> list[float]:
    """Return when each round of tokens of *groups*, one request each, is back at n0 in the simulator."""
    shape, last = shelf.shape, len(layers) - 1
    each = shape.layer_cost(1, 1, shelf.lengths.context)

    async def stage(node: Transport) -> list[float]:
        i, ends_s = node.rank, []
        work = Cost(layers[i] * each.flops, layers[i] * each.memory_bytes, layers[i] * each.operators)
        size = shape.hidden_bytes(1) if i < last else TOKEN_BYTES
        async with asyncio.TaskGroup() as sending:
            for number in range(groups * (rounds + (i == 0))):
                if i or number >= groups:
                    await node.recv((i - 1) % len(layers), "hidden")
                    ends_s += [asyncio.get_running_loop().time()] * (number % groups == groups - 1)
                if i or number < groups * rounds:
                    await node.compute(lambda: None, cost=work)
                    if i == last:
                        await node.compute(lambda: None, cost=shape.head_cost(1))
                    hidden = torch.empty(int(size), dtype=torch.uint8)
                    sending.create_task(node.send((i + 1) % len(layers), "hidden", hidden))
        return ends_s

    return list(clusters.run(topology, *[stage] * len(layers))[0])


FAST = Device("fast", 1e12, 100e9, operator_overhead_s=1e-5)
SLOW = Device("slow", 1e11, 10e9, work_overhead_s=1e-4)


def test_a_token_takes_the_time_that_the_simulator_gives_its_way_through_a_pipeline() -> None:
    topology = clusters.star(3, 125e6, 50e-6, n0=SLOW, n1=FAST, n2=SLOW)
    shelf = ClusterModelCosts(topology, PRESETS["smollm2"], Lengths())
    cut = shelf.cut(("n0", "n1", "n2"), 1)
    assert cut is not None
    assert cut.layers == (1, 28, 1)
    assert circulated_s(topology, shelf, cut.layers, 1, 1) == [pytest.approx(cut.token_s, rel=1e-9)]


@pytest.mark.parametrize("groups", [2, 3, 9])
def test_groups_in_flight_get_their_tokens_as_often_as_in_the_simulator(groups: int) -> None:
    topology = clusters.star(3, 125e6, 50e-6, n0=SLOW, n1=FAST, n2=FAST)
    shelf, layers = ClusterModelCosts(topology, PRESETS["smollm2"], Lengths()), (4, 22, 4)
    stages_s = [shelf.pace(f"n{i}", 1).stage_s(layers[i], i == 2) for i in range(3)]
    order = ("n0", "n1", "n2")
    hops_s, back_s = shelf.hops_s(order, 1), shelf.back_s(order, 1)
    assert max(stages_s) > 10 * max(hops_s)  # a hop that decides would count with its latency, which takes no turn
    ends_s = circulated_s(topology, shelf, layers, groups, 12)
    expected_s = cycle_s(stages_s, hops_s, back_s, groups)
    assert ends_s[-1] - ends_s[-2] == pytest.approx(expected_s, rel=1e-9)
    # Two groups leave the slowest stage idle in between; nine never do.
    assert (expected_s > groups * max(stages_s)) == (groups == 2)


def test_a_hop_counts_the_overheads_and_the_bandwidth_of_its_hosts() -> None:
    topology = clusters.with_nodes(clusters.star(2, 1e6, 0.001), send_overhead_s=0.01, recv_overhead_s=0.02)
    assert hop_s(topology, "n0", "n1", 1e6) == pytest.approx(0.01 + 0.002 + 1.0 + 0.02, rel=1e-9)
    assert hop_s(clusters.with_nodes(topology, host_bandwidth_Bps=5e5), "n0", "n1", 1e6) == pytest.approx(2.032)
    assert hop_s(topology, "n0", "n0", 1e6) == 0.0


@pytest.mark.parametrize("link", [{"medium": "air"}, {"duplex": "half"}, {"duplex": "free"}, {}])
def test_a_hop_over_a_shared_medium_takes_the_time_of_the_simulator(link: dict[str, Any]) -> None:
    # On a medium both links of the route take turns: 1 MB at 1 MB/s lasts 2 s; otherwise 1 s. And 2 ms of latency.
    topology = clusters.with_links(clusters.star(2, 1e6, 0.001), **link)
    (arrived_s,) = clusters.arrivals(topology, [10**6])
    assert arrived_s == pytest.approx(2.002 if "medium" in link else 1.002, rel=1e-9)
    assert hop_s(topology, "n0", "n1", 1e6) == pytest.approx(arrived_s, rel=1e-9)


def test_times_of_one_and_two_machines_are_those_that_fix_the_parameters() -> None:
    for machine in MEASURED_MS:
        for n in (1, 2):
            assert predicted_ms(machine, "7B", n) == pytest.approx(MEASURED_MS[machine]["7B"][n], rel=1e-9)
