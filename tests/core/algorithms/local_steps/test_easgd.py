"""Elastic averaging: its three forms against naive loops, the bound of its stability, and where pushes go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from simcluster.lab.verify.claims.local_steps import easgd as reference
from simcluster.lab.verify.naive import overwrite, vector
from simcluster.topology import Device
from simcluster.workloads import train_alone
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    UNEVEN,
    WORKLOAD,
    changes_something,
    close,
    lost_somebody,
    quadratics,
    takes_the_same_time_without_values,
    train,
)
from tests.support.clusters import star

DEFAULTS = {"form": "asynchronous", "interval": 4, "beta": 0.9}


@pytest.mark.parametrize("form", ["asynchronous", "synchronous", "round_robin"])
def test_one_rank_alone_is_one_process(form: str) -> None:
    close(train("easgd", 1, form=form).weights, [train_alone(WORKLOAD, 1, SEED, 12)])


@pytest.mark.parametrize("size", [2, 3, 4, 7])
@pytest.mark.parametrize("form", ["synchronous", "round_robin"])
@pytest.mark.parametrize("settings", [{"interval": 1}, {"interval": 5, "beta": 0.4}], ids=str)
def test_it_is_the_naive_loop_also_where_the_last_round_is_shorter(
    settings: dict[str, Any], form: str, size: int
) -> None:
    run = train("easgd", size, form=form, **settings)
    close(run.weights, reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, "form": form, **settings}))


def test_in_order_of_arrival_each_pulls_the_centre_and_is_pulled_as_far() -> None:
    # n1 takes longer for a step than n0 for the whole run: n0 meets the centre 3 times, then n1 does.
    run = train("easgd", star(2, n1=Device("slow", 1.0)), interval=5, beta=0.6)
    assert run.values(0, "staleness") == [0.0] * 3 + [3.0, 0.0, 0.0]
    replicas = [WORKLOAD.replica(rank, 2, SEED, 12) for rank in range(2)]
    centre = vector(replicas[0])
    for replica in replicas:
        for step, batch in enumerate(replica.batches(), start=1):
            gradients = replica.loss_and_gradients(batch)[1]
            if step in (5, 10, 12):
                force = 0.3 * (vector(replica) - centre)
                centre = centre + force
                overwrite(replica, vector(replica) - force)
            replica.apply(gradients)
    torch.testing.assert_close(run.vectors[0], centre, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(run.vectors[1], vector(replicas[1]), rtol=1e-12, atol=1e-12)


def radius(p: int, eta: float, alpha: float) -> float:
    """By how much a round of the round-robin scheme on f = x^2/2 multiplies (x_1, ..., x_p, centre), at most."""
    product = np.eye(p + 1)
    for worker in range(p):
        turn = np.eye(p + 1)
        turn[worker, worker], turn[p, p] = 1 - eta - alpha, 1 - alpha
        turn[worker, p] = turn[p, worker] = alpha
        product = turn @ product
    return float(np.abs(np.linalg.eigvals(product)).max())


@pytest.mark.parametrize("eta", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(("share", "grows"), [(0.98, False), (1.02, True)])
def test_round_robin_is_stable_up_to_the_bound_of_the_paper_and_no_farther(
    share: float, grows: bool, eta: float
) -> None:
    alpha, p, steps = share * (4 - 2 * eta) / (4 - eta), 3, 100
    unit, start = torch.eye(1), torch.full((1, 1), 5.0)
    workload = quadratics([unit] * p, [torch.zeros(1)] * p, eta)
    run = train(
        "easgd", p, workload=workload, steps=steps, begin=[start, -start, start],
        form="round_robin", interval=1, beta=alpha * p,
    )  # fmt: skip
    size = max(float(vector.abs().max()) for vector in run.vectors)
    assert (radius(p, eta, alpha) > 1) == grows
    assert (size > 5.0) == grows


@pytest.mark.parametrize("p", [3, 16, 64])
@pytest.mark.parametrize("eta", [0.1, 1.0, 1.9])
def test_the_bound_is_that_of_the_scheme_for_few_ranks_and_many(eta: float, p: int) -> None:
    bound = (4 - 2 * eta) / (4 - eta)
    assert radius(p, eta, 0.99 * bound) < 1 < radius(p, eta, 1.01 * bound)
    assert radius(p, 2.01, 0.0) > 1, "whatever the spring, a step of more than 2 is too long"


def test_pushes_are_all_applied() -> None:
    run = train("easgd", UNEVEN)
    pushed = [run.values(rank, "pushed")[-1] for rank in range(3)]
    assert pushed == [3.0] * 3
    assert run.values(0, "applied")[-1] == 9.0


def test_what_travels_is_a_model_up_and_a_force_down_or_a_ring_or_the_centre_once_round() -> None:
    # 12 steps, met at 4, 8 and 12, by 3 ranks.
    asynchronous = train("easgd", 3)
    assert len(asynchronous.sizes("push")) == len(asynchronous.sizes("answer")) == 2 * 3
    assert train("easgd", 3, form="synchronous").messages_sent == 3 * 3 * 4
    assert train("easgd", 3, form="round_robin").messages_sent == 3 * 3


@pytest.mark.parametrize(
    "settings",
    [{"form": "synchronous"}, {"form": "round_robin"}, {"interval": 1}, {"beta": 0.3}, {"server_trains": False}],
)
def test_every_setting_changes_something(settings: dict[str, Any]) -> None:
    changes_something("easgd", settings, {"interval": 2}, EVEN)


@pytest.mark.parametrize("form", ["asynchronous", "synchronous", "round_robin"])
def test_without_values_it_takes_the_same_time(form: str) -> None:
    takes_the_same_time_without_values("easgd", UNEVEN, form=form)


def test_the_asynchronous_form_goes_on_without_a_lost_worker_and_the_others_end_with_it() -> None:
    crash = ["kind: crash, node: n2, at: 9 ms"]
    lost = train("easgd", EVEN, faults=crash, interval=2)
    assert lost.results[:2] == [None, None]
    assert torch.isfinite(lost.vectors[0]).all()
    for form in ("synchronous", "round_robin"):
        run = train("easgd", EVEN, faults=crash, interval=2, form=form)
        assert all(lost_somebody(result) for result in run.results[:2]), form
