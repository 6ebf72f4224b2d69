"""all_reduce_dp with delayed gradients: stragglers and leads."""

from __future__ import annotations

import pytest

from simcluster.topology import Device
from tests.core.algorithms.data_parallel.all_reduce_runs import STEPS, moody, train, values
from tests.support.clusters import star


def test_who_is_fast_changes_no_bit() -> None:
    for staleness in (0, 1, 3):
        runs = [
            train(topology, staleness=staleness)[0]
            for topology in (star(3), moody(3), star(3, n1=Device("slow", 1e4)), star(3, latency_s=1e-2))
        ]
        assert len({replica.weights_sha256() for replicas in runs for replica in replicas}) == 1, staleness


def test_a_transient_straggler_is_ridden_out_by_staleness() -> None:
    # With a barrier a step lasts as long as its slowest rank, 10 with probability 1 - 0.8^4 = 0.59, about 6.3 times the
    # usual; without any barrier 0.2 * 10 + 0.8 = 2.8 times.
    times = [train(moody(4), steps=40, staleness=staleness)[2] for staleness in (0, 1, 4)]
    assert times[1] < 0.85 * times[0]
    assert times[2] < 0.6 * times[0]
    assert times[2] > 2.8 / 6.3 * 0.9 * times[0], "no rank is faster than its own work"


def test_a_lasting_straggler_sets_the_pace_whatever_the_bound() -> None:
    slow = star(3, n2=Device("slow", 1e4))
    times = [train(slow, steps=20, staleness=staleness)[2] for staleness in (0, 4)]
    assert times[1] == pytest.approx(times[0], rel=0.15)


def test_fast_ranks_lead_by_the_bound_and_the_slowest_by_nothing() -> None:
    # n2 takes 10 ms and more for a gradient, the others next to nothing; an all-reduce takes 0.2 ms.
    _, records, _ = train(star(3, n2=Device("slow", 1e4)), staleness=3)
    leads = [[lead for _, lead in values(record, "lead")] for record in records]
    assert leads[0] == leads[1] == [0, 1, 2] + [3] * (STEPS - 3)
    assert max(leads[2]) == 1, "what it has just sent is still under way when it goes on"
    for record, lead in zip(records, leads, strict=True):
        assert values(record, "lead_max") == [(STEPS, max(lead))]
        assert values(record, "lead_mean") == [(STEPS, pytest.approx(sum(lead) / STEPS))]


def test_without_staleness_there_is_no_lead_to_record() -> None:
    _, records, _ = train(star(2))
    assert {metric.name for metric in records[0].metrics} == {"loss"}
