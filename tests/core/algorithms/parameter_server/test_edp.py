"""The asynchronous server: its staleness; what it pushes, and by which share; and a server that only serves.

See also test_algorithms; stability, momentum and the floor of the loss are in experiments/papers.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from simcluster.lab.verify.claims.parameter_server import one_worker
from simcluster.topology.model.stragglers import Exponential
from simcluster.workloads import quadratic
from tests.core.algorithms.served import Served, bowl, equal, serve, slow

N = 4


# Staleness


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_equal_workers_are_all_exactly_as_stale_as_there_are_others(workers: int) -> None:
    staleness = serve("edp", equal(workers), 10).values("staleness")
    assert staleness[:workers] == list(range(workers)), "the first ones come one after another"
    assert set(staleness[workers:]) <= {workers - 1}
    assert len(staleness) == 10 * workers


def until_the_first_has_ended(done: Served) -> list[float]:
    end_s = min(done.times("pushed", rank)[-1] for rank in range(1, len(done.records)))
    pairs = zip(done.values("staleness"), done.times("staleness"), strict=True)
    return [value for value, time_s in pairs if time_s <= end_s]


@pytest.mark.parametrize("factors", [(1.0, 1.0, 1.0), (1.0, 1.3, 2.9, 7.7), (0.1, 5.0)])
def test_the_mean_staleness_is_the_number_of_others_whatever_the_speeds(factors: tuple[float, ...]) -> None:
    # Versions between two pushes of one worker telescope, so their sum over M pushes is (n-1) M less, for each worker,
    # what has come since its last push: at most as many as come in the time of a gradient of the slowest.
    n = len(factors)
    staleness = until_the_first_has_ended(serve("edp", slow(*factors), 150))
    in_one_gradient = sum(max(factors) / factor + 1 for factor in factors)
    assert abs(sum(staleness) / len(staleness) - (n - 1)) <= n * in_one_gradient / len(staleness)


def test_the_staleness_of_memoryless_workers_is_geometric() -> None:
    # P(tau = k) = (1 - 1/n)^k / n.
    staleness = until_the_first_has_ended(serve("edp", [Exponential(1.0)] * N, 500))
    count = len(staleness)
    for k in range(8):
        share = (1 - 1 / N) ** k / N
        found = sum(value == k for value in staleness) / count
        assert abs(found - share) < 3 * math.sqrt(share * (1 - share) / count), k


def test_a_worker_is_as_stale_as_the_others_are_fast() -> None:
    # Rates 1 and 1/4, R = 5/4: R/r - 1 = 1/4 for the fast one and 4 for the slow one, which pushes every fifth time.
    staleness = sorted(until_the_first_has_ended(serve("edp", slow(1, 4), 200)))
    fast, late = staleness[: len(staleness) * 4 // 5], staleness[len(staleness) * 4 // 5 :]
    assert sum(fast) / len(fast) == pytest.approx(1 / 4, abs=0.02)
    assert sum(late) / len(late) == pytest.approx(4, abs=0.1)


# Convergence


def path_of(staleness: list[float], eta: float) -> list[float]:
    """x_{t+1} = x_t - eta x_{t - tau_t}, from 1."""
    x = [1.0]
    for t, tau in enumerate(staleness):
        x.append(x[-1] - eta * x[t - int(tau)])
    return x


def test_every_push_is_a_step_along_the_gradient_where_it_was_taken() -> None:
    done = serve("edp", [Exponential(1.0)] * 3, 12, bowl(0.3))
    assert done.weights[0].item() == pytest.approx(path_of(done.values("staleness"), 0.3)[-1], rel=1e-12)


# What is pushed


def test_int8_pushes_train_nearly_as_well() -> None:
    workload = quadratic(features=6, samples=256, batch_size=8)
    dense, small = (
        serve("edp", equal(2), 60, workload, compression=compression).replicas[0].evaluate()["loss"]
        for compression in ("none", "int8")
    )
    assert small == pytest.approx(dense, rel=0.05)


@pytest.mark.parametrize("interval", [1, 3])
def test_of_weights_the_server_takes_the_share_one_over_one_plus_staleness(interval: int) -> None:
    factors, steps, eta = (1.0, 2.7), 12, 0.2
    workload = bowl(eta, sigma=0.5, size=3)
    done = serve("edp", slow(*factors), steps, workload, push="weights", pull_interval=interval)
    # The same by one process: rounds of *interval* steps end in order of time.
    replicas = [workload.replica(rank, 3, 3, steps) for rank in range(3)]
    batches = [replica.batches() for replica in replicas]
    rounds = [
        ((number + 1) * interval * factor, rank)
        for rank, factor in enumerate(factors, start=1)
        for number in range(steps // interval)
    ]
    downloaded, expected = [0, 0, 0], []
    for version, (_, rank) in enumerate(sorted(rounds)):
        server, worker = replicas[0], replicas[rank]
        for _ in range(interval):
            # Its own gradients count with as much as a step takes beside the others': one piece of work each.
            worker.apply(worker.loss_and_gradients(next(batches[rank]))[1])
        staleness = version - downloaded[rank]
        expected.append(float(staleness))
        pairs = zip(server.parameters, worker.parameters, strict=True)
        server.load([mine + (theirs - mine) / (1 + staleness) for mine, theirs in pairs])
        worker.load(server.parameters)
        downloaded[rank] = version + 1
    assert done.values("staleness") == expected
    for mine, replica in zip(done.replicas, replicas, strict=True):
        torch.testing.assert_close(mine.parameters, replica.parameters, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("interval", [1, 10])
def test_a_worker_contributes_its_share_however_seldom_it_pulls(interval: int) -> None:
    # Staleness counts pushes of others since the download, so of four equal workers each is 3 stale and counts 1/4;
    # if every step made a version, those that pull every ten would count 1/31.
    done = serve("edp", equal(4), 40, push="weights", pull_interval=interval)
    assert set(done.values("staleness")[4:]) == {3.0}


def test_a_training_server_is_one_of_equals_among_blended_weights() -> None:
    # Its ten steps are one version: a worker beside it that is as fast counts 1/2, or 1/3 when the moments fall badly.
    done = serve("edp", equal(1), 40, push="weights", pull_interval=10, server_trains=True, server_s=1.0)
    assert done.last("applied") == 40 + 4
    assert max(done.values("staleness")) <= 2.0


def test_one_worker_alone_trains_whatever_it_pushes() -> None:
    workload = quadratic(features=4, samples=64, batch_size=4, dtype="float64")
    expected = one_worker(workload, 2, 5, 12, {"server_trains": False})
    for settings in ({}, {"push": "weights"}, {"push": "weights", "pull_interval": 5}):
        done = serve("edp", equal(1), 12, workload, seed=5, **settings)
        for mine, weights in zip(done.weights, expected, strict=True):
            torch.testing.assert_close(mine, weights[0], rtol=1e-12, atol=1e-12)


# Who serves, what is counted, who is lost


def test_a_server_that_does_not_train_leaves_it_to_the_others() -> None:
    done = serve("edp", equal(3), 10, bowl(0.1))
    assert done.last("applied") == done.pushed == 30
    assert not done.values("pushed", 0)
    with_it = serve("edp", equal(3), 10, bowl(0.1), server_trains=True)
    assert with_it.last("applied") == with_it.pushed == 40
    assert with_it.last("pushed", 0) == 10


@pytest.mark.parametrize(
    "settings", [{"max_staleness": 2}, {"max_staleness": 1, "push": "weights", "pull_interval": 2}]
)
@pytest.mark.parametrize("server_trains", [True, False])
def test_every_push_is_applied_or_rejected(settings: dict[str, Any], server_trains: bool) -> None:
    done = serve("edp", slow(1, 1, 5.5), 20, bowl(0.1), server_trains=server_trains, server_s=0.01, **settings)
    assert done.last("rejected") > 0
    assert done.pushed == done.last("applied") + done.last("rejected")
