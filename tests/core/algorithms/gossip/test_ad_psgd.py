"""AD-PSGD: nobody waits for one who has ended, no circle of waiting closes on any graph, and pairs keep the mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.topology import Device
from simcluster.topology.model.stragglers import Constant
from tests.core.algorithms.gossip.runs import INSTANT, SEED, STILL, Ran, run
from tests.support.clusters import star, with_nodes

UNIT_S = 10e-3
"""What a gradient takes, and its application, together."""


def uneven(size: int, slow: str, factor: float, exchange_s: float) -> Any:
    """A star on which an averaging takes *exchange_s*, and node *slow* is *factor* times as slow as the others."""
    usual = replace(INSTANT, work_overhead_s=UNIT_S / 2)
    bandwidth_Bps = 2 * 48 / (exchange_s / 2)  # there and back, half of it latency
    topology = with_nodes(star(size, bandwidth_Bps, latency_s=exchange_s / 8), device=usual)
    nodes = {**topology.nodes, slow: replace(topology.nodes[slow], device=replace(usual, straggler=Constant(factor)))}
    return replace(topology, nodes=nodes)


@given(
    st.sampled_from(["ring", "line", "star", "complete", "exponential"]), st.integers(1, 9), st.sampled_from([1.0, 7.0])
)
@settings(max_examples=25)
def test_it_ends_on_every_graph_of_every_size_and_every_rank_has_taken_all_its_steps(
    overlay: str, size: int, factor: float
) -> None:
    ran = run("ad_psgd", uneven(size, "n0", factor, 0.3 * UNIT_S), overlay=overlay, steps=6)
    assert [len(ran.values(rank, "loss")) for rank in range(size)] == [6] * size


def test_nobody_waits_for_one_who_has_ended() -> None:
    # n2 is ten times as slow: all others have taken their last step long before it takes its last.
    ran = run("ad_psgd", uneven(5, "n2", 10.0, 0.1 * UNIT_S), overlay="line", steps=8)
    last_s = [max(metric.time_s for metric in record.metrics) for record in ran.records]
    assert last_s[2] == pytest.approx(8 * 10 * UNIT_S, rel=0.02)
    assert max(last_s[:2] + last_s[3:]) < 1.3 * 8 * UNIT_S


@pytest.mark.parametrize("overlay", ["ring", "line", "star", "complete"])
def test_pairs_keep_the_mean_and_draw_all_towards_it(overlay: str) -> None:
    ran = run("ad_psgd", uneven(5, "n1", 3.0, 0.2 * UNIT_S), workload=STILL, apart=True, overlay=overlay, steps=60)
    first = STILL.replica(0, 5, SEED, 1).parameters[0].reshape(-1).numpy()
    assert np.abs(ran.weights.mean(axis=0) - (first + 2)).max() <= 1e-6
    assert np.ptp(ran.weights, axis=0).max() < 0.5, "they began 4 apart"


def test_a_node_answers_while_it_computes() -> None:
    # n1 computes for 100 units; n0 asks it once a unit, and its staleness counts each averaging of n1's weights.
    ran = run("ad_psgd", uneven(2, "n1", 100.0, 0.1 * UNIT_S), steps=20)
    first_of_n1 = ran.values(1, "staleness")[0]
    assert first_of_n1 == 20, "all of n0's askings, before n1 has its first gradient"
    finished_s = max(metric.time_s for metric in ran.records[0].metrics)
    assert finished_s < 25 * UNIT_S


def test_the_output_is_ones_own_model_or_the_mean_of_all() -> None:
    local, mean = run("ad_psgd", 4), run("ad_psgd", 4, output="mean")
    assert np.abs(mean.weights - local.weights.mean(axis=0)).max() <= 1e-12
    assert np.ptp(local.weights, axis=0).max() > 1e-3
    assert mean.values(2, "consensus") == [
        pytest.approx(((local.weights[2] - local.weights.mean(axis=0)) ** 2).sum(), rel=1e-9)
    ]


def test_a_graph_that_changes_has_no_sides() -> None:
    with pytest.raises(UsageError, match="does not change"):
        run("ad_psgd", 4, overlay="one_peer_exponential")


# losses


def lost(ran: Ran) -> list[int]:
    """The ranks that did not end well."""
    return [rank for rank, result in enumerate(ran.results) if isinstance(result, BaseException)]


def test_one_that_comes_back_is_asked_and_answered_again() -> None:
    for rank in (0, 1):
        faults = (f"kind: restart, node: n{rank}, at: 25 ms, after: 5 ms",)
        ran = run("ad_psgd", uneven(4, "n3", 2.0, 0.1 * UNIT_S), faults=faults, fails=True, steps=10)
        assert lost(ran) == []
        staleness = ran.values(rank, "staleness")
        assert len(staleness) > 10
        # An averaging a step but where the two meet the same moment; none at all if nobody talked to it any more.
        assert sum(staleness[-10:]) >= 3


@pytest.mark.parametrize(("hit", "size"), [(0, 3), (1, 2)], ids=["those that answer", "one that asks"])
def test_a_rank_without_a_partner_trains_on_alone(hit: int, size: int) -> None:
    faults = (f"kind: crash, node: n{hit}, at: 25 ms",)
    ran = run("ad_psgd", uneven(size, "n0", 1.0, 0.1 * UNIT_S), overlay="star", faults=faults, fails=True)
    assert lost(ran) == [hit]
    assert all(len(ran.values(rank, "loss")) == 12 for rank in range(size) if rank != hit)


@pytest.mark.parametrize("rank", [0, 1], ids=["that answers", "that asks"])
def test_an_only_partner_that_comes_back_twice_is_averaged_with_each_time(rank: int) -> None:
    faults = (f"kind: restart, node: n{rank}, at: 25 ms, after: 5 ms, every: 45 ms, times: 2",)
    ran = run("ad_psgd", uneven(2, "n1", 1.0, 0.1 * UNIT_S), faults=faults, fails=True, steps=12)
    assert lost(ran) == []
    # Its third life begins at 75 ms, and the other one trains until 120 ms: four steps of both, 10 ms each.
    assert sum(ran.values(rank, "staleness")[-12:]) >= 3


def test_the_last_rank_to_train_ends_well_although_no_partner_has_asked_it() -> None:
    quick, slow = (Device("even", 1e15, work_overhead_s=overhead_s) for overhead_s in (1e-3, 1e-2))
    asked = []
    for last in ("n1", "n2", "n3"):
        done = run(
            "ad_psgd", star(4, **dict.fromkeys(("n0", "n1", "n2", "n3"), quick) | {last: slow}), steps=1, overlay="star"
        )
        assert done.results == [None] * 4
        sent = [span.tag for span in done.records[int(last[1:])].spans if span.kind == "send"]
        asked.append(sent == ["mean"])
    assert sorted(asked) == [False, False, True], "rank 0 asks one of the three"
