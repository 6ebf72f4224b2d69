"""The synchronous server: what waiting costs, backup workers, who is late; and a server that only serves.

See also test_algorithms.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from simcluster.topology.model.stragglers import Exponential
from simcluster.workloads import quadratic
from tests.core.algorithms.served import Served, bowl, equal, harmonic, serve, slow
from tests.core.algorithms.trained import lost_somebody, train
from tests.support.clusters import star

P, STEPS = 5, 250
EXPONENTIAL = [Exponential(1.0)] * P


def step_s(done: Served) -> float:
    return done.times("contributions")[-1] / len(done.values("contributions"))


# Waiting


@pytest.mark.parametrize("k", [1, 3, 5])
def test_with_late_work_cancelled_a_step_takes_the_kth_of_p(k: int) -> None:
    deviation = math.sqrt(sum(1 / i**2 for i in range(P - k + 1, P + 1)))
    found = step_s(serve("sync_ps", EXPONENTIAL, STEPS, wait_for=k, cancel_late=True))
    assert abs(found - (harmonic(P) - harmonic(P - k))) < 3 * deviation / math.sqrt(STEPS)


@pytest.mark.slow
def test_without_cancelling_the_late_ones_are_missed_in_the_steps_after() -> None:
    # They go on with work that nobody wants, so that fewer compete for the first K.
    dropped, kept = (step_s(serve("sync_ps", EXPONENTIAL, STEPS, wait_for=3, cancel_late=c)) for c in (True, False))
    assert kept > 1.2 * dropped


# Backup workers


def test_the_first_k_make_a_step_and_the_late_are_rejected_and_brought_up_to_date() -> None:
    # Ranks take 1, 2 and 4.5 s: K = 2 are there every 2 s. The third comes at 4.5, in the step that ends at 6, and is
    # sent the weights of that step; its next gradient is there at 9, late again; and so on.
    done = serve("sync_ps", slow(1, 2, 4.5), 6, bowl(0.1), wait_for=2)
    assert done.times("contributions") == pytest.approx([2.0, 4.0, 6.0, 8.0, 10.0, 12.0])
    assert done.values("late") == [0, 0, 1, 0, 1, 0]
    assert done.last("rejected") == 3, "the third one is under way when the last step is made"
    assert done.last("pushed", 3) == 3
    assert torch.equal(done.weights[3], done.weights[0]), "everyone ends with the final weights"


def test_who_is_late_is_told_to_stop_and_joins_the_next_step() -> None:
    # Of 1, 2 and 30 s the third never gets to push; of 1, 2 and 2.5 s neither, for each step takes 2 s.
    for third in (30, 2.5):
        done = serve("sync_ps", slow(1, 2, third), 6, bowl(0.1), wait_for=2, cancel_late=True)
        assert done.times("contributions") == pytest.approx([2.0, 4.0, 6.0, 8.0, 10.0, 12.0])
        assert done.last("pushed", 3) == done.last("rejected") == 0
        assert torch.equal(done.weights[3], done.weights[0])


def test_the_servers_own_gradient_is_always_one_of_the_first() -> None:
    done = serve("sync_ps", slow(1, 2, 4.5), 6, bowl(0.1), wait_for=2, server_trains=True)
    assert set(done.values("contributions")) == {2.0}
    assert done.times("contributions")[0] == pytest.approx(1.0)


@pytest.mark.parametrize("cancel_late", [False, True])
@pytest.mark.parametrize("server_trains", [False, True])
def test_every_push_is_applied_or_rejected(cancel_late: bool, server_trains: bool) -> None:
    done = serve(
        "sync_ps", EXPONENTIAL, 30, bowl(0.1), wait_for=3, cancel_late=cancel_late, server_trains=server_trains
    )
    assert done.last("applied") == 3 * 30
    assert done.pushed == done.last("applied") + done.last("rejected")


def test_between_pulls_late_workers_are_sent_weights_all_the_same() -> None:
    done = serve("sync_ps", slow(1, 2, 9), 8, bowl(0.1), wait_for=2, cancel_late=True, pull_interval=4)
    assert torch.equal(done.weights[3], done.weights[0])
    assert torch.equal(done.weights[1], done.weights[0]), "step 8 is one to pull on"


# A time-out


def test_a_server_that_does_not_train_waits_for_one_gradient_at_least() -> None:
    # Nobody is there after half a second: the first one, at 1 s, makes the step; the second, at 3 s, is late.
    done = serve("sync_ps", slow(1, 3), 4, bowl(0.5), timeout_s=0.5)
    assert set(done.values("contributions")) == {1.0}
    assert done.times("contributions")[:2] == pytest.approx([1.0, 2.0])


def test_a_time_out_and_cancelling_go_together() -> None:
    done = serve("sync_ps", slow(1, 3), 4, bowl(0.5), timeout_s=1.5, cancel_late=True)
    assert done.times("contributions") == pytest.approx([1.5, 3.0, 4.5, 6.0])
    assert done.last("pushed", 2) == 0


# Everything else


CRASH = "kind: crash, node: n1, at: 4.5 s"


@pytest.mark.parametrize("cancel_late", [False, True])
@pytest.mark.parametrize("server_trains", [False, True])
def test_backup_workers_replace_a_lost_one(cancel_late: bool, server_trains: bool) -> None:
    settings = {"wait_for": 2, "cancel_late": cancel_late, "server_trains": server_trains}
    done = serve("sync_ps", equal(3), 20, bowl(0.1), faults=(CRASH,), check=False, **settings)
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    assert set(done.values("contributions")) == {2.0}
    assert torch.equal(done.weights[3], done.weights[0])


@pytest.mark.parametrize("settings", [{}, {"wait_for": 3}, {"wait_for": 3, "cancel_late": True}, {"timeout_s": 9.0}])
def test_it_goes_on_with_those_that_are_left_and_divides_by_their_number(settings: dict[str, Any]) -> None:
    # Steps of 1 s from 0 s on: n1 has pushed four times when it dies, and is missing from the fifth step on.
    done = serve("sync_ps", equal(3), 20, bowl(0.1), faults=(CRASH,), check=False, **settings)
    assert [done.results[rank] for rank in (0, 2, 3)] == [None, None, None]
    assert done.values("contributions") == [3.0] * 4 + [2.0] * 16
    assert torch.equal(done.weights[3], done.weights[0])


def test_a_server_that_is_back_when_its_workers_end_does_not_train_on_alone() -> None:
    far = star(3, latency_s=1e-2)
    settings: dict[str, Any] = {"wait_for": 2, "cancel_late": True}
    whole = train("sync_ps", far, steps=3, **settings)
    ended_s = max(span.end_s for record in whole.records[1:] for span in record.spans)
    restart = f"kind: restart, node: n0, at: {ended_s - 2e-3} s, after: 1 ms"  # the workers have their last reply then
    run = train("sync_ps", far, steps=3, faults=[restart], **settings)
    assert run.results[1:] == [None, None]
    assert lost_somebody(run.results[0])


@pytest.mark.parametrize(
    ("compression", "pushed"),
    [
        # 48 numbers in one block: a byte each, and a minimum and a step size of 8 bytes.
        ("int8", 48 + 2 * 8),
        # A quarter of them: 8 bytes and an int32 each.
        ({"kind": "top_k", "fraction": 0.25}, 12 * (8 + 4)),
    ],
)
def test_pushes_are_as_small_as_the_closed_form_and_weights_travel_whole(compression: Any, pushed: int) -> None:
    workload = quadratic(features=48, batch_size=4, dtype="float64")
    small, whole = (train("sync_ps", 3, workload=workload, compression=kind) for kind in (compression, "none"))
    # In each of 12 steps two workers push; a message of several tensors has a slightly longer header.
    longer = sum(small.sizes("gradients")) - sum(whole.sizes("gradients")) - 12 * 2 * (pushed - 48 * 8)
    assert 0 <= longer < 12 * 2 * 60
    assert sum(small.sizes("reply")) == sum(whole.sizes("reply"))
    assert not torch.equal(small.vectors[0], whole.vectors[0])
    assert all(torch.equal(vector, small.vectors[0]) for vector in small.vectors)
