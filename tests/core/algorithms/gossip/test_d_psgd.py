"""D-PSGD: its time, its laws, and what it does without a neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcluster.errors import PeerLost
from simcluster.topology import ring
from tests.core.algorithms.gossip.runs import INSTANT, STILL, run
from tests.support.clusters import star, with_nodes

BYTES = 6 * 8
"""Of WORKLOAD's weights."""


def test_the_consensus_recorded_is_the_squared_distance_from_the_mean_of_all() -> None:
    ran = run("d_psgd", 4, consensus_every=5)
    weights = run("d_psgd", 4, steps=10).weights
    for rank in range(4):
        recorded = ran.values(rank, "consensus")
        assert len(recorded) == 2, "after steps 5 and 10 of 12"
        assert recorded[1] == pytest.approx(((weights[rank] - weights.mean(axis=0)) ** 2).sum(), rel=1e-9)


def test_a_round_with_both_ring_neighbours_takes_a_plus_m_over_b_on_a_physical_ring() -> None:
    topology = with_nodes(ring(5, bandwidth="8 Mbps", latency="1 ms"), device=INSTANT)
    ran = run("d_psgd", topology, steps=10)
    assert ran.end_s == pytest.approx(10 * (1e-3 + BYTES / 1e6), rel=1e-9)


def test_one_peer_a_round_takes_a_plus_m_over_b_on_a_star() -> None:
    topology = with_nodes(star(8, bandwidth_Bps=1e6, latency_s=1e-3), device=INSTANT)
    ran = run("d_psgd", topology, steps=9, overlay="one_peer_exponential")
    assert ran.end_s == pytest.approx(9 * (2e-3 + BYTES / 1e6), rel=1e-9)


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


NEED_ALL = ({"overlay": "exponential"}, {"output": "mean"}, {"consensus_every": 60})


@pytest.mark.parametrize(
    ("name", "settings"),
    [(name, one) for name in ("d_psgd", "choco_sgd", "gradient_tracking") for one in NEED_ALL]
    + [("sgp", one) for one in NEED_ALL[1:]],
    ids=str,
)
def test_where_all_are_needed_a_loss_ends_it(name: str, settings: dict[str, Any]) -> None:
    ran = run(name, 5, faults=("kind: crash, node: n4, at: 1 ms",), fails=True, steps=100, **settings)
    assert all(isinstance(result, (PeerLost, ExceptionGroup)) for result in ran.results[:4])
    assert max(record.steps for record in ran.records) < 40, "and not only at the end, or when the mean is next taken"
