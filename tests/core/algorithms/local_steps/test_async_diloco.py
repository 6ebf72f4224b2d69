"""Asynchronous DiLoCo: delayed Nesterov against the paper's lines, dynamic local updates, and where changes go."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from simcluster.algorithms.local_steps import rounds as outer
from simcluster.lab.verify.claims.diloco import delayed_nesterov
from simcluster.lab.verify.naive import overwrite, vector, walk
from simcluster.topology import Device
from tests.core.algorithms.trained import (
    SEED,
    UNEVEN,
    WORKLOAD,
    train,
)
from tests.support.clusters import star


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=12),
    st.integers(1, 5),
    st.floats(0, 1),
    st.floats(0.01, 2),
    st.floats(0, 0.99),
)
def test_the_arithmetic_is_the_papers(
    arrivals: list[float], N: int, spread: float, epsilon: float, beta: float
) -> None:
    deltas = [torch.tensor([value, -value], dtype=torch.float64) for value in arrivals]
    theta, m, gathered = torch.ones(2, dtype=torch.float64), *torch.zeros(2, 2, dtype=torch.float64)
    expected = delayed_nesterov(theta, deltas, epsilon, beta, N, spread / N)
    for number, delta in enumerate(deltas, start=1):
        due = number % N == 0
        theta, m, gathered = outer.delayed_nesterov(theta, m, gathered, delta, due, epsilon, beta, N, spread)
        torch.testing.assert_close(theta, expected[number - 1], rtol=1e-9, atol=1e-9)


def test_with_one_arrival_an_update_it_is_torchs_nesterov() -> None:
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.7, momentum=0.9, nesterov=True)
    theta, m, gathered = weight.detach().clone(), *torch.zeros(2, 3, dtype=torch.float64)
    for number in range(5):
        delta = torch.arange(3, dtype=torch.float64) - number
        weight.grad = delta
        optimizer.step()
        theta, m, gathered = outer.delayed_nesterov(theta, m, gathered, delta, True, 0.7, 0.9, 1, 0.5)
        torch.testing.assert_close(theta, weight.detach(), rtol=1e-12, atol=1e-12)


def test_a_late_worker_is_stale_by_what_arrived_meanwhile() -> None:
    # n1 takes longer for a step than n0 for the whole run: 3 changes of n0 arrive, then all of n1.
    run = train("async_diloco", star(2, n1=Device("slow", 1.0)), interval=4, dynamic=False, delay=2)
    assert run.values(0, "staleness") == [0.0] * 3 + [3.0, 0.0, 0.0]
    server, worker = (WORKLOAD.replica(rank, 2, SEED, 12) for rank in range(2))
    start = vector(server)
    arrivals: list[torch.Tensor] = []
    theta = start
    for replica, batches in ((server, server.batches()), (worker, worker.batches())):
        for number in range(3):
            began = start if replica is worker and number == 0 else theta
            overwrite(replica, began)
            walk(replica, batches, 4)
            arrivals.append(began - vector(replica))
            theta = delayed_nesterov(start, arrivals, 0.7, 0.9, 2, 0.0)[-1]
    for mine in run.vectors:
        torch.testing.assert_close(mine, theta, rtol=1e-12, atol=1e-12)


def test_a_rank_four_times_as_slow_makes_a_quarter_of_the_steps_a_round() -> None:
    # 48 steps: n1 in 6 rounds of 8; n2 once of 8 and then, of 40, in rounds of 2.
    run = train("async_diloco", UNEVEN, interval=8, steps=48)
    assert run.values(1, "pushed")[-1] == 6.0
    assert run.values(2, "pushed")[-1] == 1 + 40 / 2
    fixed = train("async_diloco", UNEVEN, interval=8, steps=48, dynamic=False)
    assert [fixed.values(rank, "pushed")[-1] for rank in range(3)] == [6.0] * 3
    assert max(run.values(0, "staleness")) <= max(fixed.values(0, "staleness"))
