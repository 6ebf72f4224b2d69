"""Stale-synchronous parallel: the bound on the lead, what waiting for it costs, both of its ends, losses."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.lab.verify.claims.parameter_server import ssp as reference
from simcluster.topology.model.stragglers import Exponential, TwoPoint
from simcluster.workloads import quadratic, sgd
from tests.core.algorithms.served import bowl, equal, harmonic, serve, slow

P = 5
EXPONENTIAL = [Exponential(1.0)] * P


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5),
    st.integers(0, 4),
    st.booleans(),
    st.sampled_from([0.0, 0.3]),
)
def test_nobody_ever_leads_by_more_than_the_bound_and_one(
    factors: list[float], s: int, server_trains: bool, latency_s: float
) -> None:
    done = serve("ssp", slow(*factors), 8, staleness=s, server_trains=server_trains, latency_s=latency_s)
    assert min(done.values("lead")) >= 0
    assert max(done.values("lead")) <= s + 1
    assert done.last("applied") == done.pushed == 8 * (len(factors) + server_trains)


@pytest.mark.parametrize("s", [0, 2, 5])
def test_the_bound_is_reached_when_one_is_much_slower(s: int) -> None:
    # The fast one does s + 1 clocks while the slow one does its first.
    done = serve("ssp", slow(1, 100), 10, staleness=s)
    assert max(done.values("lead")) == s + 1


def test_without_a_bound_the_fast_run_ahead_as_far_as_they_can() -> None:
    assert max(serve("ssp", slow(1, 100), 10, staleness=None).values("lead")) == 10


def test_with_bound_zero_a_clock_takes_the_longest_of_all() -> None:
    # The mean longest of P exponentials is H_P, its variance the sum of 1/i^2: throughput P / H_P.
    steps = 300
    found = max(serve("ssp", EXPONENTIAL, steps, staleness=0).times("applied")) / steps
    assert abs(found - harmonic(P)) < 3 * math.sqrt(sum(1 / i**2 for i in range(1, P + 1)) / steps)


@pytest.mark.slow
def test_transient_stragglers_are_waited_for_less_with_a_larger_bound() -> None:
    stragglers = [TwoPoint(10.0, 0.05)] * P
    ends = [max(serve("ssp", stragglers, 100, staleness=s).times("applied")) for s in (0, 2, 8)]
    assert ends[0] > 1.3 * ends[1] > 1.3 * ends[2]


@pytest.mark.parametrize("s", [0, 1, 4])
def test_a_worker_that_is_always_slow_sets_the_pace_whatever_the_bound(s: int) -> None:
    # k = 4: it ends its i-th clock at 4 i; the others are at i + s + 1 then, and end the 20th after its (19 - s)-th.
    done = serve("ssp", slow(1, 1, 4), 20, staleness=s)
    assert done.times("pushed", 3)[-1] == pytest.approx(80.0)
    assert done.times("pushed", 1)[-1] == pytest.approx(4.0 * (19 - s) + 1.0)


def test_without_a_bound_a_slow_worker_holds_up_nobody() -> None:
    done = serve("ssp", slow(1, 1, 4), 20, staleness=None)
    assert done.times("pushed", 1)[-1] == pytest.approx(20.0)


@pytest.mark.parametrize("server_trains", [True, False])
def test_with_bound_zero_it_is_the_synchronous_server(server_trains: bool) -> None:
    workload = quadratic(features=4, samples=64, batch_size=4, dtype="float64")
    done = serve("ssp", EXPONENTIAL, 9, workload, seed=5, staleness=0, server_trains=server_trains)
    expected = reference(workload, P + 1, 5, 9, {"staleness": 0, "server_trains": server_trains})
    for mine, weights in zip(done.weights, expected, strict=True):
        torch.testing.assert_close(mine, weights[0], rtol=1e-12, atol=1e-12)
    assert set(done.values("staleness")) == {0.0}
    sync = serve("sync_ps", EXPONENTIAL, 9, workload, seed=5, server_trains=server_trains)
    assert torch.equal(sync.weights[0], done.weights[0]), "to the bit"
    assert sync.times("applied")[-1] == done.times("applied")[-1], "and at the same time"


def test_with_an_optimizer_that_has_a_state_too() -> None:
    # What was pushed is applied when somebody reads: with bound 0 one step of the mean, not one step for each.
    workload = replace(bowl(0.1, sigma=1.0), optimizer=sgd(0.1, 0.9))
    bulk = serve("ssp", slow(1, 2, 3), 9, workload, staleness=0)
    assert torch.equal(bulk.weights[0], serve("sync_ps", slow(1, 2, 3), 9, workload).weights[0])


@pytest.mark.parametrize("server_trains", [True, False])
def test_without_a_bound_it_is_the_asynchronous_server(server_trains: bool) -> None:
    runs = [
        serve(name, EXPONENTIAL, 9, bowl(0.1), server_trains=server_trains, **given_settings)
        for name, given_settings in (("ssp", {"staleness": None}), ("edp", {}))
    ]
    assert torch.equal(runs[0].weights[0], runs[1].weights[0])
    assert runs[0].values("staleness") == runs[1].values("staleness")
    assert runs[0].times("staleness") == runs[1].times("staleness")


def test_nothing_computed_takes_the_time_and_the_messages_of_something_computed() -> None:
    runs = [serve("ssp", EXPONENTIAL, 20, workload, staleness=2, latency_s=0.05) for workload in (bowl(0.1), None)]
    assert runs[0].times("lead") == runs[1].times("lead")
    assert [record.sent_to for record in runs[0].records] == [record.sent_to for record in runs[1].records]


def test_the_clock_of_a_lost_worker_holds_nobody_up() -> None:
    done = serve("ssp", equal(3), 20, bowl(0.1), staleness=1, faults=("kind: crash, node: n1, at: 4.5 s",), check=False)
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    # 4 of the lost one's clocks were pushed; all that was pushed is applied.
    assert done.last("applied") == 4 + 2 * 20
    assert torch.isfinite(done.weights[0]).all()


def test_one_that_comes_back_starts_at_the_slowest_ones_clock() -> None:
    restart = "kind: restart, node: n1, at: 4.5 s, after: 2 s"
    done = serve("ssp", slow(1, 1, 2), 20, bowl(0.1), staleness=1, faults=(restart,))
    assert done.results == [None] * 4
    assert max(done.values("lead")) <= 2
    assert done.times("pushed", 1)[-1] > 20.0, "it does all of its batches"
