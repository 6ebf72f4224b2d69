"""Elastic averaging: its three forms, and where pushes go. The bound of its stability is in experiments/papers."""

from __future__ import annotations

import pytest
import torch

from simcluster.lab.verify.naive import overwrite, vector
from simcluster.topology import Device
from simcluster.workloads import train_alone
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    WORKLOAD,
    close,
    lost_somebody,
    train,
)
from tests.support.clusters import star


@pytest.mark.parametrize("form", ["asynchronous", "synchronous", "round_robin"])
def test_one_rank_alone_is_one_process(form: str) -> None:
    close(train("easgd", 1, form=form).weights, [train_alone(WORKLOAD, 1, SEED, 12)])


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


def test_what_travels_is_a_model_up_and_a_force_down_or_a_ring_or_the_centre_once_round() -> None:
    # 12 steps, met at 4, 8 and 12, by 3 ranks.
    asynchronous = train("easgd", 3)
    assert len(asynchronous.sizes("push")) == len(asynchronous.sizes("answer")) == 2 * 3
    assert train("easgd", 3, form="synchronous").messages_sent == 3 * 3 * 4
    assert train("easgd", 3, form="round_robin").messages_sent == 3 * 3


@pytest.mark.parametrize("form", ["synchronous", "round_robin"])
def test_forms_without_a_server_end_with_a_lost_rank(form: str) -> None:
    run = train("easgd", EVEN, faults=["kind: crash, node: n2, at: 9 ms"], interval=2, form=form)
    assert all(lost_somebody(result) for result in run.results[:2])
