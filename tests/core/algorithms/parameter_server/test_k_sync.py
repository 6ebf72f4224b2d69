"""K-sync and K-batch-sync: what the first K are worth in time (Dutta et al. 2018), what becomes of the rest, losses."""

from __future__ import annotations

import math

import pytest
import torch

from simcluster.errors import PeerLost
from simcluster.lab.verify.claims.parameter_server import k_sync as reference
from simcluster.topology.model.stragglers import Exponential, TwoPoint
from simcluster.workloads import quadratic
from tests.core.algorithms.served import Served, bowl, equal, harmonic, serve, slow

P, STEPS = 5, 250
EXPONENTIAL = [Exponential(1.0)] * P


def step_s(done: Served) -> float:
    return done.times("applied")[-1] / len(done.values("applied"))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_step_of_k_sync_takes_the_kth_of_p_exponential_times(k: int) -> None:
    # (H_P - H_{P-K}) / mu; the K spacings are independent, of deviations 1/P ... 1/(P-K+1).
    deviation = math.sqrt(sum(1 / i**2 for i in range(P - k + 1, P + 1)))
    found = step_s(serve("k_sync", EXPONENTIAL, STEPS, k=k))
    assert abs(found - (harmonic(P) - harmonic(P - k))) < 3 * deviation / math.sqrt(STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("k", [2, 7])
def test_a_step_of_k_batch_sync_takes_k_arrivals_of_p_ranks(k: int) -> None:
    # K / (P mu), of deviation sqrt(K) / (P mu); K may be more than P.
    found = step_s(serve("k_sync", EXPONENTIAL, STEPS, k=k, batch=True))
    assert abs(found - k / P) < 3 * math.sqrt(k) / P / math.sqrt(STEPS)


@pytest.mark.slow
def test_the_best_number_to_wait_for_leaves_out_the_few_that_are_slow() -> None:
    # Chen et al. 2016: of 100 workers, 1 % of the steps of each 10 times slower. Gradients a second, K / E[T]: 85/1;
    # with K = 95 six must be slow at once, which happens in 0.05 % of the steps; with K = 99 two, in 26 %: 99/3.4.
    steps, speed = 12, {}
    for k in (85, 95, 99):
        speed[k] = k / step_s(serve("k_sync", [TwoPoint(10.0, 0.01)] * 100, steps, k=k))
    assert max(speed, key=lambda k: speed[k]) == 95


def test_late_work_is_cancelled_and_its_time_is_not_spent() -> None:
    # Of ranks that take 1, 2 and 30 s two are enough: a step takes 2 s, and the third, told so, never pushes.
    done = serve("k_sync", slow(1, 2, 30), 10, bowl(0.1), k=2)
    assert done.times("applied") == pytest.approx([2.0 * step for step in range(1, 11)])
    assert [done.last("pushed", rank) for rank in (1, 2, 3)] == [10, 10, 0]
    assert all(torch.equal(weights, done.weights[0]) for weights in done.weights), "all end with the final weights"


def test_in_a_batch_step_a_fast_rank_is_taken_more_than_once() -> None:
    # Of ranks that take 1 and 5 s three gradients are those at 1, 2 and 3 s, of the first.
    done = serve("k_sync", slow(1, 5), 4, bowl(0.1), k=3, batch=True)
    assert done.times("applied") == pytest.approx([3.0, 6.0, 9.0, 12.0])
    assert [done.last("pushed", rank) for rank in (1, 2)] == [12, 0]


def test_what_comes_at_the_same_time_as_the_last_that_is_needed_is_counted_rejected() -> None:
    # Three equal ranks, of which one is enough: three pushes a step at one moment.
    done = serve("k_sync", equal(3), 8, bowl(0.1), k=1)
    assert done.last("applied") == 8
    assert done.last("rejected") > 0
    assert done.pushed == done.last("applied") + done.last("rejected")


@pytest.mark.parametrize("server_trains", [True, False])
@pytest.mark.parametrize("batch", [True, False])
def test_every_push_is_applied_or_rejected(batch: bool, server_trains: bool) -> None:
    done = serve("k_sync", EXPONENTIAL, 30, bowl(0.1), k=3, batch=batch, server_trains=server_trains)
    assert done.pushed == done.last("applied") + done.last("rejected")
    assert done.last("applied") == 3 * 30


def test_all_of_all_is_the_mean_of_all() -> None:
    workload = quadratic(features=4, samples=64, batch_size=4, dtype="float64")
    done = serve("k_sync", EXPONENTIAL, 9, workload, seed=5)
    settings = {"k": None, "batch": False, "server_trains": False}
    for mine, expected in zip(done.weights, reference(workload, P + 1, 5, 9, settings), strict=True):
        torch.testing.assert_close(mine, expected[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch", [True, False])
def test_nothing_computed_takes_the_time_and_the_messages_of_something_computed(batch: bool) -> None:
    runs = [
        serve("k_sync", EXPONENTIAL, 20, workload, k=2, batch=batch, latency_s=0.05) for workload in (bowl(0.1), None)
    ]
    assert runs[0].times("applied") == runs[1].times("applied")
    assert [record.sent_to for record in runs[0].records] == [record.sent_to for record in runs[1].records]


CRASH = "kind: crash, node: n1, at: 4.5 s"


@pytest.mark.parametrize(("k", "batch", "server_trains"), [(2, False, False), (3, False, True), (9, True, False)])
def test_it_goes_on_without_a_rank_that_is_lost_while_enough_are_left(k: int, batch: bool, server_trains: bool) -> None:
    done = serve(
        "k_sync", equal(3), 20, bowl(0.1), k=k, batch=batch, server_trains=server_trains, faults=(CRASH,), check=False
    )
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    assert done.last("applied") == 20 * k, "the divisor is the number summed, which is K"
    assert torch.equal(done.weights[2], done.weights[0])


@pytest.mark.parametrize("k", [None, 3])
def test_where_fewer_than_k_are_left_a_step_takes_one_of_each(k: int | None) -> None:
    # Steps of 1 s: n1 has pushed four times when it dies.
    done = serve("k_sync", equal(3), 20, bowl(0.1), k=k, faults=(CRASH,), check=False)
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    assert done.last("applied") == 4 * 3 + 16 * 2
    assert torch.equal(done.weights[2], done.weights[0])


@pytest.mark.parametrize("batch", [True, False])
def test_it_ends_when_nobody_is_left_that_trains(batch: bool) -> None:
    done = serve("k_sync", equal(1), 20, bowl(0.1), k=1, batch=batch, faults=(CRASH,), check=False)
    error = done.results[0]
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, PeerLost)
    assert error.rank == 1


@pytest.mark.parametrize("batch", [True, False])
def test_a_rank_that_comes_back_takes_part_again(batch: bool) -> None:
    restart = "kind: restart, node: n1, at: 4.5 s, after: 2 s"
    done = serve("k_sync", equal(3), 20, bowl(0.1), k=2, batch=batch, faults=(restart,))
    assert done.results == [None] * 4
    assert any(time_s > 8.0 for time_s in done.times("pushed", 1))
