"""K-sync and K-batch-sync: what becomes of the late ones, losses. The time of a step is in experiments/papers."""

from __future__ import annotations

import pytest
import torch

from simcluster.topology.model.stragglers import Exponential
from tests.core.algorithms.served import bowl, equal, serve, slow

EXPONENTIAL = [Exponential(1.0)] * 5


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
