"""Stochastic gradient push: what is pushed, and losses. Its mean on directed graphs is in experiments/papers."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from simcluster_backends.sim.cluster import SimCluster
from simcluster_backends.sim.faults import SimFaults

from simcluster.errors import PeerLost
from simcluster.lab.verify.claims.gossip import LOPSIDED
from simcluster.overlays import swap
from simcluster.payload import pack
from simcluster.transport import Transport
from tests.core.algorithms.gossip.runs import INSTANT, SEED, STILL, run
from tests.support.clusters import star, with_nodes
from tests.support.plans import plan


def test_the_numbers_pushed_sum_to_the_number_of_ranks() -> None:
    ran = run("sgp", 3, overlay=LOPSIDED)
    weights = np.array([ran.values(rank, "push_weight") for rank in range(3)])
    assert weights.shape == (3, 12)
    assert np.abs(weights.sum(axis=0) - 3).max() <= 1e-12
    assert np.ptp(weights) > 0.1, "or nothing was to be corrected"


@pytest.mark.slow
def test_those_that_live_go_on_and_agree_within_what_they_had() -> None:
    ran = run("sgp", 5, workload=STILL, apart=True, faults=("kind: crash, node: n4, at: 1 ms",), fails=True, steps=400)
    assert [isinstance(result, BaseException) for result in ran.results] == [False] * 4 + [True]
    first = STILL.replica(0, 5, SEED, 1).parameters[0].reshape(-1).numpy()
    assert np.ptp(ran.weights[:4], axis=0).max() <= 1e-9, "they agree"
    assert ((ran.weights[:4] > first) & (ran.weights[:4] < first + 4)).all(), "on a mean of what there was"


@pytest.mark.parametrize("fault", ["kind: join, node: n3, at: 6 ms", "kind: restart, node: n3, at: 6 ms, after: 10 us"])
def test_who_comes_between_two_rounds_is_not_waited_for_by_those_that_had_not_missed_it(fault: str) -> None:
    # In the first round, at 5 ms, n2 sends to n3 and n3 to n0; in the second, at 10 ms, n1 and n3 would swap, of which
    # n3 is in its first, and waits for n2, which has given it up.
    topology = with_nodes(star(4), device=replace(INSTANT, work_overhead_s=5e-3))
    ran = run("sgp", topology, faults=(fault,), fails=True)
    assert ran.results[:3] == [None] * 3
    assert [record.steps for record in ran.records[:3]] == [12] * 3
    assert isinstance(ran.results[3], PeerLost)


def test_who_hears_from_nobody_any_more_is_told_so_rather_than_give_all_it_has_away() -> None:
    one_way = {"kind": "edges", "edges": [[0, 1], [1, 2], [2, 3], [3, 0]], "directed": True}
    ran = run("sgp", 4, overlay=one_way, faults=("kind: crash, node: n2, at: 1 ms",), fails=True, steps=400)
    # n3 learns of n2, n0 of n3; then n1 has no node to hear from or to send to, and continues alone.
    assert [isinstance(result, PeerLost) for result in ran.results] == [True, False, False, True]
    assert ran.records[1].steps == 400


def test_nothing_of_what_those_that_live_hold_is_lost_with_a_dead_rank() -> None:
    # On a ring every w is 1. n4 dies over its second gradient, before anybody's second share reaches it: each of its
    # neighbours keeps that share, so the four that live hold 4 for ever.
    usual = replace(INSTANT, work_overhead_s=5e-3)
    faults = ("kind: crash, node: n4, at: 12 ms",)
    topology = with_nodes(star(5), device=usual)
    ran = run("sgp", topology, overlay="ring", faults=faults, fails=True, steps=20)
    weights = np.array([ran.values(rank, "push_weight") for rank in range(4)])
    assert np.abs(weights.sum(axis=0) - 4).max() <= 1e-12
    assert np.ptp(weights[:, -1]) > 1e-4, "which is not to say that each of them holds 1"


def test_the_output_is_the_mean_of_all_x_whatever_their_w() -> None:
    local, mean = run("sgp", 3, overlay=LOPSIDED), run("sgp", 3, overlay=LOPSIDED, output="mean")
    assert len({replica.weights_sha256() for replica in mean.replicas}) == 1
    assert np.abs(mean.weights[0] - local.weights.mean(axis=0)).max() > 1e-6, "the mean of x is not the mean of z"


def test_a_swap_with_one_that_has_died_and_come_back_meanwhile_ends() -> None:
    # n1 dies at 1 s and is back at 1.1 s. At 2 s the send says so, and from then on n1 would be listened to again.
    async def looks_away(node: Transport) -> list[int]:
        await asyncio.sleep(2)
        came = await swap(node, [1], [1], "round", pack(torch.zeros(1)))
        return [*came.losses, *came.messages]

    async def waits(node: Transport) -> None:
        await node.recv(0, "what is never sent")

    topology = star(2)
    cluster = SimCluster(topology, faults=SimFaults(plan(topology, "kind: restart, node: n1, at: 1 s, after: 100 ms")))
    assert cluster.run([looks_away, waits])[0] == [1]
