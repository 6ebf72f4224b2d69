"""K-async and K-batch-async: what waiting for K is worth in time (Dutta et al. 2018), staleness, both ends, losses."""

from __future__ import annotations

import math

import pytest
import torch

from simcluster.lab.verify.claims.parameter_server import k_async as reference
from simcluster.topology.model.stragglers import Exponential
from simcluster.workloads import quadratic
from tests.core.algorithms.served import Served, bowl, equal, harmonic, serve, slow

P, STEPS = 5, 250
EXPONENTIAL = [Exponential(1.0)] * P


def updates(done: Served) -> list[float]:
    """When each update was made, until the first rank had no batch left."""
    first_end = min(done.times("pushed", rank)[-1] for rank in range(1, P + 1))
    return sorted({time_s for time_s in done.times("applied") if time_s <= first_end})


@pytest.mark.parametrize("k", [1, 2, 4])
def test_an_update_of_k_batch_async_takes_k_arrivals_of_p_ranks(k: int) -> None:
    # K / (P mu), of deviation sqrt(K) / (P mu).
    times = updates(serve("k_async", EXPONENTIAL, STEPS, k=k, batch=True))
    assert abs(times[-1] / len(times) - k / P) < 3 * math.sqrt(k) / P / math.sqrt(len(times))


@pytest.mark.parametrize("k", [2, 4])
def test_an_update_of_k_async_takes_no_longer_than_one_of_k_sync(k: int) -> None:
    # <= (H_P - H_{P-K}) / mu, for nobody's work is lost; for exponential times it is a little less, or equal.
    times = updates(serve("k_async", EXPONENTIAL, STEPS, k=k))
    deviation = math.sqrt(sum(1 / i**2 for i in range(P - k + 1, P + 1)))
    assert times[-1] / len(times) < harmonic(P) - harmonic(P - k) + 3 * deviation / math.sqrt(len(times))


@pytest.mark.slow
def test_asynchronous_is_p_times_h_p_as_fast_as_synchronous() -> None:
    fast = updates(serve("k_async", EXPONENTIAL, STEPS, k=1))
    all_together = updates(serve("k_async", EXPONENTIAL, STEPS))
    ratio = (all_together[-1] / len(all_together)) / (fast[-1] / len(fast))
    # Relative standard errors: 1/sqrt(1,200) of the one, 0.53/sqrt(250) of the other, for H_5 = 2.28 +- 1.21.
    deviation = math.hypot(1 / math.sqrt(len(fast)), 0.53 / math.sqrt(STEPS))
    assert ratio == pytest.approx(P * harmonic(P), rel=3 * deviation)


def test_an_update_is_of_k_different_ranks_and_those_wait_for_it() -> None:
    # Ranks that take 1, 2 and 5 s, K = 2: the first waits at 1 for the second at 2; both begin again: 4. At 5 the third
    # has one too, and the first's third is there at 5 as well: an update of these two.
    done = serve("k_async", slow(1, 2, 5), 3, bowl(0.1), k=2)
    assert sorted(set(done.times("applied")))[:3] == pytest.approx([2.0, 4.0, 5.0])
    assert done.values("staleness")[:6] == [0.0, 0.0, 0.0, 0.0, 0.0, 2.0]


def test_an_update_of_a_batch_may_be_of_one_rank() -> None:
    done = serve("k_async", slow(1, 100), 4, bowl(0.1), k=2, batch=True)
    assert done.times("applied")[:4] == pytest.approx([2.0, 2.0, 4.0, 4.0])


@pytest.mark.parametrize("server_trains", [True, False])
def test_all_of_all_is_the_mean_of_all(server_trains: bool) -> None:
    workload = quadratic(features=4, samples=64, batch_size=4, dtype="float64")
    done = serve("k_async", EXPONENTIAL, 9, workload, seed=5, server_trains=server_trains)
    expected = reference(workload, P + 1, 5, 9, {"k": None, "batch": False, "server_trains": server_trains})
    for mine, weights in zip(done.weights, expected, strict=True):
        torch.testing.assert_close(mine, weights[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch", [True, False])
def test_one_of_all_is_the_asynchronous_server(batch: bool) -> None:
    runs = [
        serve(name, EXPONENTIAL, 9, bowl(0.1), **given)
        for name, given in (("k_async", {"k": 1, "batch": batch}), ("edp", {}))
    ]
    assert torch.equal(runs[0].weights[0], runs[1].weights[0])
    assert runs[0].values("staleness") == runs[1].values("staleness")
    assert runs[0].times("staleness") == runs[1].times("staleness")


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("server_trains", [True, False])
def test_every_push_is_applied_also_where_k_does_not_divide_their_number(batch: bool, server_trains: bool) -> None:
    done = serve("k_async", slow(1, 2.5, 4), 7, bowl(0.1), k=2, batch=batch, server_trains=server_trains)
    assert done.last("applied") == done.pushed == 7 * (3 + server_trains)


@pytest.mark.parametrize("batch", [True, False])
def test_nothing_computed_takes_the_time_and_the_messages_of_something_computed(batch: bool) -> None:
    runs = [
        serve("k_async", EXPONENTIAL, 20, workload, k=2, batch=batch, latency_s=0.05) for workload in (bowl(0.1), None)
    ]
    assert runs[0].times("applied") == runs[1].times("applied")
    assert [record.sent_to for record in runs[0].records] == [record.sent_to for record in runs[1].records]


@pytest.mark.parametrize("server_trains", [True, False])
@pytest.mark.parametrize("batch", [True, False])
def test_it_goes_on_without_a_lost_worker_even_if_fewer_than_k_are_left(batch: bool, server_trains: bool) -> None:
    crash = "kind: crash, node: n1, at: 4.5 s"
    done = serve(
        "k_async", equal(3), 20, bowl(0.1), batch=batch, server_trains=server_trains, faults=(crash,), check=False
    )
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    assert done.last("applied") == 4 + (2 + server_trains) * 20
    assert torch.isfinite(done.weights[0]).all()


@pytest.mark.parametrize("batch", [True, False])
def test_one_that_comes_back_begins_again(batch: bool) -> None:
    restart = "kind: restart, node: n1, at: 4.5 s, after: 2 s"
    done = serve("k_async", equal(3), 20, bowl(0.1), k=2, batch=batch, faults=(restart,))
    assert done.results == [None] * 4
    # Equal pushes arrive in the order in which they were sent: n1 is never the one that waits a second for the next.
    assert done.last("applied") == 4 + 3 * 20
