"""The asynchronous server against its laws: staleness, the stability of delayed steps, momentum out of asynchrony; what
it pushes, and by which share; and a server that only serves. See also test_algorithms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from simcluster.lab.verify.claims.parameter_server import one_worker
from simcluster.topology.model.stragglers import Exponential
from simcluster.workloads import mnist_mlp, quadratic
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


def losses(learning_rate: float, tau: int, steps: int) -> list[float]:
    return serve("edp", equal(tau + 1), steps, bowl(learning_rate)).values("loss")


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0, 1, 3])
def test_delayed_steps_are_stable_up_to_the_bound_and_no_further(tau: int) -> None:
    # x_{t+1} = x_t - eta x_{t-tau} is stable if and only if eta < 2 sin(pi / (2 (2 tau + 1))).
    # One per cent beyond, the swing grows by 2 %, 0.5 % and 0.2 % an update for tau = 0, 1 and 3.
    bound = 2 * math.sin(math.pi / (2 * (2 * tau + 1)))
    updates = 800 if tau == 3 else 400
    for share, grows in ((0.99, False), (1.01, True)):
        found = losses(share * bound, tau, updates // (tau + 1))
        early, late = max(found[len(found) // 4 : len(found) // 2]), max(found[-len(found) // 4 :])
        assert (late > 2 * early) is grows, share
        assert (late < early / 2) is not grows, share


def test_asynchronous_diverges_where_synchronous_does_not_and_dividing_by_staleness_mends_it() -> None:
    # eta = 1 is below 2, above 0.445 (staleness 3), and a third of it is below that again.
    def distance(name: str, **settings: Any) -> float:
        return float(serve(name, equal(4), 60, bowl(1.0), **settings).weights[0].abs().max())

    assert distance("sync_ps") < 1e-6
    assert distance("edp") > 1e6
    assert distance("edp", damping="inverse") < 1e-3


def path_of(staleness: list[float], eta: float) -> list[float]:
    """x_{t+1} = x_t - eta x_{t - tau_t}, from 1."""
    x = [1.0]
    for t, tau in enumerate(staleness):
        x.append(x[-1] - eta * x[t - int(tau)])
    return x


def test_every_push_is_a_step_along_the_gradient_where_it_was_taken() -> None:
    done = serve("edp", [Exponential(1.0)] * 3, 12, bowl(0.3))
    assert done.weights[0].item() == pytest.approx(path_of(done.values("staleness"), 0.3)[-1], rel=1e-12)


@pytest.mark.slow
def test_asynchrony_begets_momentum() -> None:
    # Mitliagkas et al. 2016: with memoryless workers the mean follows heavy ball with momentum 1 - 1/M and step eta/M.
    workers, eta, updates, runs = 3, 0.3, 6, 50
    paths = [
        path_of(serve("edp", [Exponential(1.0)] * workers, updates, seed=seed).values("staleness")[:updates], eta)
        for seed in range(runs)
    ]
    heavy = [1.0, 1.0 - eta]
    for _ in range(updates - 1):
        heavy.append(heavy[-1] + (1 - 1 / workers) * (heavy[-1] - heavy[-2]) - eta / workers * heavy[-1])
    mean, error = np.mean(paths, axis=0), np.std(paths, axis=0) / math.sqrt(runs)
    assert (np.abs(mean - heavy)[2:] < 3 * error[2:]).all()
    plain = (1 - eta) ** updates
    assert abs(mean[-1] - plain) > 3 * error[-1], "and not the way without momentum"


# What is pushed


def test_int8_pushes_move_a_quarter_of_the_bytes_within_one_per_cent() -> None:
    workload = mnist_mlp(hidden=64)
    sent = {
        compression: sum(
            record.bytes_sent for record in serve("edp", equal(2), 4, workload, compression=compression).records[1:]
        )
        for compression in ("none", "int8")
    }
    assert sent["none"] / sent["int8"] == pytest.approx(4.0, rel=0.01)


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


@pytest.mark.parametrize("settings", [{"compression": "int8"}, {"push": "weights", "pull_interval": 3}])
def test_nothing_computed_takes_the_time_and_the_messages_of_something_computed(settings: dict[str, Any]) -> None:
    runs = [
        serve("edp", [Exponential(1.0)] * 3, 20, workload, latency_s=0.05, **settings) for workload in (bowl(0.1), None)
    ]
    assert runs[0].times("staleness") == runs[1].times("staleness")
    assert [record.sent_to for record in runs[0].records] == [record.sent_to for record in runs[1].records]


@pytest.mark.parametrize("settings", [{}, {"push": "weights", "pull_interval": 3}])
def test_the_others_go_on_without_a_lost_worker_and_with_one_that_comes_back(settings: dict[str, Any]) -> None:
    lost = serve("edp", equal(3), 20, bowl(0.1), faults=("kind: crash, node: n1, at: 8.5 s",), check=False, **settings)
    assert [lost.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    rounds = -(-20 // settings.get("pull_interval", 1))
    before = 8 if not settings else 1  # with its own updates, of a second as well, three steps take 6 s
    assert lost.last("applied") == before + 2 * rounds
    restart = "kind: restart, node: n1, at: 8.5 s, after: 2 s"
    back = serve("edp", equal(3), 20, bowl(0.1), faults=(restart,), **settings)
    assert back.last("applied") == before + 3 * rounds


def test_asynchronous_decays_sooner_and_ends_higher_than_synchronous() -> None:
    # Dutta et al. 2018: the curves of loss against time cross. In 5 s four memoryless workers make 20 updates of one
    # gradient, or 2.4 of four; the floor of the one is above eta sigma^2 / (2 (2 - eta)) = 0.026 a coordinate, of the
    # other a quarter of that.
    size, steps = 1000, 60
    workload = bowl(0.1, sigma=1.0, size=size, samples=5 * steps)
    loss: dict[str, list[float]] = {}
    for name in ("edp", "sync_ps"):
        done = serve(name, [Exponential(1.0)] * N, steps, workload)
        curve = list(zip(done.times("loss"), done.values("loss"), strict=True))
        early = [value / size for time_s, value in curve if 3 < time_s < 10]
        late = [value / size for _, value in curve[-len(curve) // 4 :]]
        loss[name] = [sum(part) / len(part) for part in (early, late)]
    assert loss["edp"][0] < 0.5 * loss["sync_ps"][0]
    assert loss["edp"][1] > 2 * loss["sync_ps"][1]
