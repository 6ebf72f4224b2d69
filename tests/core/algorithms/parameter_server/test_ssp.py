"""Stale-synchronous parallel: the bound on the lead, both of its ends, losses. Its speed is in experiments/papers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simcluster.workloads import sgd
from tests.core.algorithms.served import bowl, equal, serve, slow


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


def test_without_a_bound_the_fast_run_ahead_as_far_as_they_can() -> None:
    assert max(serve("ssp", slow(1, 100), 10, staleness=None).values("lead")) == 10


def test_with_an_optimizer_that_has_a_state_too() -> None:
    # What was pushed is applied when somebody reads: with bound 0 one step of the mean, not one step for each.
    workload = replace(bowl(0.1, sigma=1.0), optimizer=sgd(0.1, 0.9))
    bulk = serve("ssp", slow(1, 2, 3), 9, workload, staleness=0)
    assert torch.equal(bulk.weights[0], serve("sync_ps", slow(1, 2, 3), 9, workload).weights[0])


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
