"""D-PSGD against W times all models in one process; its time, its laws, and what it does without a neighbour."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simcluster.errors import PeerLost
from simcluster.lab.verify.claims.gossip import d_psgd as reference
from simcluster.overlays import overlay_of
from simcluster.topology import complete, ring
from simcluster.workloads import sgd, train_alone
from tests.core.algorithms.gossip.runs import INSTANT, SEED, STILL, WORKLOAD, noise, run
from tests.core.workloads.costs.test_timing_only import both, same_time_and_messages
from tests.support.clusters import chain, star, with_nodes

DEFAULTS: dict[str, Any] = {"overlay": "ring", "order": "mix_then_step", "consensus_every": 0, "output": "local"}
BYTES = 6 * 8
"""Of WORKLOAD's weights."""


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"order": "step_then_mix"},
        {"overlay": "exponential"},
        {"overlay": {"kind": "erdos_renyi", "probability": 0.5, "every": 2}},
        {"overlay": "star", "output": "mean"},
    ],
    ids=str,
)
def test_every_rank_ends_where_w_times_all_models_does(settings: dict[str, Any], size: int) -> None:
    ran = run("d_psgd", size, **settings)
    expected = reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, **settings})
    for replica, weights in zip(ran.replicas, expected, strict=True):
        torch.testing.assert_close(replica.parameters, list(weights), rtol=1e-12, atol=1e-12)


def test_on_the_complete_graph_the_mean_after_the_step_is_all_reduce_and_the_mean_before_it_is_not() -> None:
    alone = torch.cat([p.reshape(-1) for p in train_alone(WORKLOAD, 4, SEED, 12)]).numpy()
    after = run("d_psgd", 4, overlay="complete", order="step_then_mix").weights
    assert np.abs(after - alone).max() <= 1e-12
    # The paper's order takes gradients at weights that lack everybody's last step.
    assert np.abs(run("d_psgd", 4, overlay="complete").weights - alone).max() > 1e-3


@pytest.mark.parametrize("order", ["mix_then_step", "step_then_mix"])
@pytest.mark.parametrize("overlay", ["ring", "line", "star", "one_peer_exponential", "exponential"])
def test_gossip_keeps_the_mean_and_draws_all_towards_it(overlay: str, order: str) -> None:
    ran = run("d_psgd", 5, workload=STILL, apart=True, overlay=overlay, order=order)
    born = run("d_psgd", 5, workload=STILL, apart=True, steps=1, overlay="complete").weights
    assert np.abs(ran.weights.mean(axis=0) - born.mean(axis=0)).max() <= 1e-6
    assert np.ptp(ran.weights, axis=0).max() < 4 / 2, "they began 4 apart"


def test_distances_from_the_mean_never_grow_without_gradients() -> None:
    ran = run("d_psgd", 7, workload=STILL, apart=True, overlay="line", consensus_every=1)
    distances = np.array([ran.values(rank, "consensus") for rank in range(7)]).sum(axis=0)
    assert (np.diff(distances) <= 0).all()


@pytest.mark.parametrize("overlay", ["ring", "complete", {"kind": "random_regular", "degree": 3}], ids=str)
@pytest.mark.parametrize("order", ["step_then_mix", "mix_then_step"])
def test_the_distance_under_noise_is_that_of_the_closed_form(order: str, overlay: Any) -> None:
    # X <- W (X - eta Z): E|X - mean|^2 / n = eta^2 sigma^2 d (1/n) sum_{i >= 2} l_i^2 / (1 - l_i^2); of
    # X <- W X - eta Z the same with 1 / (1 - l_i^2), as a draw has not been averaged yet. The coordinates are
    # independent, so their spread tells the standard error. After 40 steps 0.667^80 of the beginning is left.
    size, dimensions, eta = 6, 400, 0.5
    squares = np.sort(np.linalg.eigvalsh(overlay_of(overlay, size, SEED).matrix()))[:-1] ** 2
    expected = eta**2 / size * ((squares if order == "step_then_mix" else 1) / (1 - squares)).sum()
    topology, workload = with_nodes(star(size), device=INSTANT), noise(dimensions, size, 40, eta)
    weights = run("d_psgd", topology, workload=workload, steps=40, overlay=overlay, order=order).weights
    found = ((weights - weights.mean(axis=0)) ** 2).mean(axis=0)
    assert abs(found.mean() - expected) <= max(1e-12, 3 * found.std(ddof=1) / sqrt(dimensions))


def test_the_consensus_recorded_is_the_squared_distance_from_the_mean_of_all() -> None:
    ran = run("d_psgd", 4, consensus_every=5)
    weights = run("d_psgd", 4, steps=10).weights
    for rank in range(4):
        recorded = ran.values(rank, "consensus")
        assert len(recorded) == 2, "after steps 5 and 10 of 12"
        assert recorded[1] == pytest.approx(((weights[rank] - weights.mean(axis=0)) ** 2).sum(), rel=1e-9)


def test_the_output_is_ones_own_model_or_the_mean_of_all() -> None:
    local, mean = run("d_psgd", 4), run("d_psgd", 4, output="mean")
    assert np.ptp(local.weights, axis=0).max() > 1e-3
    assert np.abs(mean.weights - local.weights.mean(axis=0)).max() <= 1e-12
    assert len({replica.weights_sha256() for replica in mean.replicas}) == 1
    assert mean.values(0, "consensus")[-1] == pytest.approx(
        ((local.weights[0] - local.weights.mean(axis=0)) ** 2).sum(), rel=1e-9
    )


def test_a_round_with_both_ring_neighbours_takes_a_plus_2m_over_b_on_a_star() -> None:
    topology = with_nodes(star(5, bandwidth_Bps=1e6, latency_s=1e-3), device=INSTANT)
    ran = run("d_psgd", topology, steps=10)
    assert ran.end_s == pytest.approx(10 * (2e-3 + 2 * BYTES / 1e6), rel=1e-9)


def test_a_round_with_both_ring_neighbours_takes_a_plus_m_over_b_on_a_physical_ring() -> None:
    topology = with_nodes(ring(5, bandwidth="8 Mbps", latency="1 ms"), device=INSTANT)
    ran = run("d_psgd", topology, steps=10)
    assert ran.end_s == pytest.approx(10 * (1e-3 + BYTES / 1e6), rel=1e-9)


def test_one_peer_a_round_takes_a_plus_m_over_b_on_a_star() -> None:
    topology = with_nodes(star(8, bandwidth_Bps=1e6, latency_s=1e-3), device=INSTANT)
    ran = run("d_psgd", topology, steps=9, overlay="one_peer_exponential")
    assert ran.end_s == pytest.approx(9 * (2e-3 + BYTES / 1e6), rel=1e-9)


def test_weights_travel_while_the_gradient_is_computed_unless_the_step_comes_first() -> None:
    # Work takes 5 ms, a round 2.096 ms: of the paper's order nothing is seen of it.
    slow = replace(INSTANT, work_overhead_s=5e-3)
    topology = with_nodes(star(4, bandwidth_Bps=1e6, latency_s=1e-3), device=slow)
    paper, after = (run("d_psgd", topology, steps=6, order=o).end_s for o in ("mix_then_step", "step_then_mix"))
    assert paper == pytest.approx(6 * (5e-3 + 5e-3), rel=1e-9)
    assert after == pytest.approx(6 * (5e-3 + 5e-3 + 2.096e-3), rel=1e-9)


@pytest.mark.parametrize("make", [star, chain], ids=["star", "line"])
def test_the_network_below_changes_the_time_and_no_bit(make: Any) -> None:
    shapes = [make(4), ring(4), complete(4)]
    hashes = [[r.weights_sha256() for r in run("d_psgd", shape).replicas] for shape in shapes]
    assert hashes[0] == hashes[1] == hashes[2]


# losses


@pytest.mark.slow
def test_those_that_live_go_on_with_the_weight_of_the_lost_one_and_keep_their_mean() -> None:
    # After n4's crash nothing is learnt: the mean of the others is what it was when they had last heard of it.
    faults = ("kind: crash, node: n4, at: 1 ms",)
    short, long = (
        run("d_psgd", 5, workload=STILL, apart=True, steps=steps, faults=faults, fails=True) for steps in (60, 400)
    )
    assert [isinstance(result, BaseException) for result in long.results] == [False] * 4 + [True]
    assert np.abs(short.weights[:4].mean(axis=0) - long.weights[:4].mean(axis=0)).max() <= 1e-9
    assert np.ptp(long.weights[:4], axis=0).max() <= 1e-9, "and come together on the line that is left"


def test_a_rank_without_a_neighbour_trains_on_alone() -> None:
    ran = run("d_psgd", 4, overlay="star", faults=("kind: crash, node: n0, at: 0.5 ms",), fails=True, steps=100)
    assert ran.results[1:] == [None] * 3
    assert [record.steps for record in ran.records[1:]] == [100] * 3


def test_one_that_comes_when_its_neighbours_have_gone_ahead_does_not_train_alone() -> None:
    faults = ("kind: join, node: n1, at: 2 ms", "kind: crash, node: n2, at: 4 ms")
    ran = run("d_psgd", 3, faults=faults, fails=True, steps=40)
    assert ran.results[0] is None
    assert isinstance(ran.results[1], (PeerLost, ExceptionGroup))
    assert ran.records[1].steps == 0


@pytest.mark.parametrize("name", ["d_psgd", "gradient_tracking", "choco_sgd"])
def test_a_rank_that_begins_after_a_late_one_does_not_wait_for_it(name: str) -> None:
    # n1 has begun without n2. n0 hangs from the start and then finds n2, which waits for n1's first round for ever.
    faults = ("kind: join, node: n2, at: 80 ms", "kind: hang, node: n0, at: 0 s, for: 600 ms")
    ran = run(name, 3, faults=faults, fails=True, steps=5)
    assert ran.results[:2] == [None] * 2
    assert [record.steps for record in ran.records[:2]] == [5] * 2
    assert isinstance(ran.results[2], (PeerLost, ExceptionGroup))


@pytest.mark.parametrize("settings", [{"overlay": "exponential"}, {"output": "mean"}, {"consensus_every": 60}], ids=str)
def test_where_all_are_needed_a_loss_ends_it(settings: dict[str, Any]) -> None:
    ran = run("d_psgd", 5, faults=("kind: crash, node: n4, at: 1 ms",), fails=True, steps=100, **settings)
    assert all(isinstance(result, (PeerLost, ExceptionGroup)) for result in ran.results[:4])
    assert max(record.steps for record in ran.records) < 40, "and not only at the end, or when the mean is next taken"


@pytest.mark.parametrize("name", ["sgp", "choco_sgd", "gradient_tracking"])
@pytest.mark.parametrize("settings", [{"output": "mean"}, {"consensus_every": 60}], ids=str)
def test_so_it_does_in_the_other_algorithms(name: str, settings: dict[str, Any]) -> None:
    ran = run(name, 5, faults=("kind: crash, node: n4, at: 1 ms",), fails=True, steps=100, **settings)
    assert all(isinstance(result, (PeerLost, ExceptionGroup)) for result in ran.results[:4])
    assert max(record.steps for record in ran.records) < 40


@pytest.mark.parametrize("settings", [{}, {"order": "step_then_mix", "consensus_every": 3, "output": "mean"}], ids=str)
def test_timing_only_takes_the_time_of_real_numerics(settings: dict[str, Any], tmp_path: Path) -> None:
    same_time_and_messages(*both({"name": "d_psgd", **settings}, tmp_path))


@pytest.mark.slow
def test_a_constant_step_ends_beside_the_optimum_where_data_differ() -> None:
    # What gradient_tracking mends, with the same rounds (tests/core/algorithms/gossip/test_gradient_tracking.py).
    from tests.core.algorithms.gossip.test_gradient_tracking import DIFFERENT, OPTIMUM

    ends = run("d_psgd", 4, workload=replace(DIFFERENT, optimizer=sgd(0.1)), steps=300).weights
    assert np.abs(ends - OPTIMUM).max() > 1e-3
