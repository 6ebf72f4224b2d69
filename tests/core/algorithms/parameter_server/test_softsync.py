"""n-softsync: how many gradients make an update, how stale they are, and what dividing by staleness mends."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from simcluster.topology.model.stragglers import Exponential
from tests.core.algorithms.served import Served, bowl, equal, serve

LAMBDA = 6


@pytest.mark.parametrize(("n", "gathered"), [(1, 6), (2, 3), (4, 1), (6, 1)])
def test_an_update_takes_lambda_over_n_gradients(n: int, gathered: int) -> None:
    done = serve("softsync", equal(LAMBDA), 10, n=n)
    assert len(set(done.metric_steps("applied"))) == 60 // gathered
    assert done.last("applied") == done.pushed == 60


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_the_mean_staleness_is_lambda_less_one_over_k(n: int) -> None:
    # Versions from each download to the next push of the same rank telescope: the sum falls short of (lambda - 1)/K a
    # push by no more than the versions since each rank's last push, some 4 lambda/K for each of them.
    steps, gathered = 200, LAMBDA // n
    done = serve("softsync", [Exponential(1.0)] * LAMBDA, steps, n=n)
    first_end = min(done.times("pushed", rank)[-1] for rank in range(1, LAMBDA + 1))
    found = [
        value
        for value, time_s in zip(done.values("staleness"), done.times("staleness"), strict=True)
        if time_s <= first_end
    ]
    assert abs(sum(found) / len(found) - (LAMBDA - 1) / gathered) < 4 * LAMBDA * LAMBDA / gathered / len(found)


def test_equal_ranks_alternate_and_are_all_equally_stale() -> None:
    done = serve("softsync", equal(4), 10, n=4)
    assert done.values("staleness") == [0, 1, 2, 3] + [3] * 36


def distance(name: str, **settings: Any) -> float:
    """From the bottom of the bowl, of four equal ranks with learning rate 1, after 60 batches each."""
    return float(serve(name, equal(4), 60, bowl(1.0), **settings).weights[0].abs().max())


def test_asynchronous_diverges_where_synchronous_does_not_and_dividing_by_staleness_mends_it() -> None:
    # Staleness 3 is stable below eta = 2 sin(pi/14) = 0.445; none below 2. 1.0 / 3 is below 0.445.
    assert distance("sync_ps") < 1e-6
    assert distance("softsync", n=4) > 1e6
    assert distance("softsync", n=4, damping="inverse") < 1e-3


def test_the_rest_at_the_end_is_divided_by_its_own_number() -> None:
    # Three ranks, one of them lost at once, two gradients each, K = 3. At 1 s two come; at 2 s, when both have taken
    # another one at x = 1, the third makes an update, 1 - 0.5 (1 + 1 + 1)/3 = 0.5, and one is left: 0.5 - 0.5 1/1 = 0.
    done = serve("softsync", equal(3), 2, bowl(0.5), n=1, faults=("kind: crash, node: n1, at: 0.5 s",), check=False)
    assert done.values("applied") == [3, 3, 3, 4]
    assert done.values("staleness") == [0, 0, 0, 1]
    assert done.weights[0].item() == pytest.approx(0.0)


def test_weights_travel_only_if_there_are_newer_ones() -> None:
    # 4 equal ranks and one update a round: of four replies in a round only the last one's is newer than its download,
    # and the next round's first three have missed it: they were answered before.
    done = serve("softsync", equal(4), 10, bowl(0.1), n=1)
    always = serve("softsync", equal(4), 10, bowl(0.1), n=4)
    assert done.records[0].messages_sent == always.records[0].messages_sent == 40
    assert done.records[0].bytes_sent < always.records[0].bytes_sent


def test_nothing_computed_takes_the_time_and_the_messages_of_something_computed() -> None:
    runs = [
        serve("softsync", [Exponential(1.0)] * 4, 20, workload, n=2, damping="inverse", latency_s=0.05)
        for workload in (bowl(0.1), None)
    ]
    assert runs[0].times("applied") == runs[1].times("applied")
    assert [record.sent_to for record in runs[0].records] == [record.sent_to for record in runs[1].records]


def hit(fault: str) -> Served:
    return serve("softsync", equal(3), 20, bowl(0.1), n=1, faults=(fault,), check=False)


def test_it_goes_on_without_a_lost_worker_with_as_many_gradients_an_update() -> None:
    done = hit("kind: crash, node: n1, at: 4.5 s")
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    assert done.last("applied") == 4 + 2 * 20
    # 44 gradients by three, and the two that are left.
    assert len(set(done.metric_steps("applied"))) == 15
    assert torch.isfinite(done.weights[0]).all()


def test_one_that_comes_back_begins_again() -> None:
    done = hit("kind: restart, node: n1, at: 4.5 s, after: 2 s")
    assert done.results == [None] * 4
    assert done.last("applied") == 4 + 3 * 20
