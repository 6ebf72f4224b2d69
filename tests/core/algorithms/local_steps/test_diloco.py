"""DiLoCo: against torch's own Nesterov in the naive loop, and local SGD, which is a special case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from simcluster.lab.verify.claims.diloco import diloco as reference
from simcluster.workloads import adamw
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    UNEVEN,
    WORKLOAD,
    changes_something,
    close,
    lost_somebody,
    takes_the_same_time_without_values,
    train,
)
from tests.support.clusters import star

DEFAULTS = {"interval": 20, "outer_learning_rate": 0.7, "outer_momentum": 0.9}


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    "settings", [{"interval": 5}, {"interval": 1}, {"interval": 4, "outer_momentum": 0.0}, {}], ids=str
)
def test_it_is_the_naive_loop_also_where_the_last_round_is_shorter(settings: dict[str, Any], size: int) -> None:
    run = train("diloco", size, **settings)
    close(run.weights, reference(WORKLOAD, size, SEED, 12, {**DEFAULTS, **settings}))
    assert all(torch.equal(vector, run.vectors[0]) for vector in run.vectors), "all end with the same bits"


def test_adam_inside_keeps_its_moments_where_they_are() -> None:
    workload = replace(WORKLOAD, optimizer=adamw(0.05))
    run = train("diloco", 3, workload=workload, interval=5)
    close(run.weights, reference(workload, 3, SEED, 12, {**DEFAULTS, "interval": 5}))
    moments = [replica.state()["optimizer.weight.exp_avg"] for replica in run.replicas]
    assert not torch.equal(moments[0], moments[1])
    # 3 rounds of a ring over 3: nothing but the outer gradient travels
    assert run.messages_sent == 3 * 3 * 4


@pytest.mark.parametrize("interval", [1, 5])
def test_with_a_plain_outer_step_of_one_it_is_local_sgd(interval: int) -> None:
    plain = train("diloco", 3, interval=interval, outer_learning_rate=1.0, outer_momentum=0.0)
    close(plain.weights, train("local_sgd", 3, interval=interval).weights)


def test_over_far_links_two_long_rounds_are_better_than_many_short_ones() -> None:
    # A route takes 20 ms: 2 (4-1) of them around a ring, 2 at once. There is one round, and 6 numbers travel.
    far = star(4, latency_s=10e-3)
    ring, direct = (train("diloco", far, schedule=schedule).elapsed_s for schedule in ("ring", "direct"))
    assert ring - direct == pytest.approx(4 * 20e-3, abs=1e-5)


def test_a_small_form_travels_and_comes_close_to_the_dense_one() -> None:
    dense, small = (train("diloco", 3, interval=4, compression=kind) for kind in ("none", "fp16"))
    assert not torch.equal(small.vectors[0], dense.vectors[0])
    torch.testing.assert_close(small.vectors[0], dense.vectors[0], rtol=2e-3, atol=2e-3)
    assert all(torch.equal(vector, small.vectors[0]) for vector in small.vectors)


@pytest.mark.parametrize(
    "settings",
    [
        {"interval": 4},
        {"outer_learning_rate": 0.5},
        {"outer_momentum": 0.5},
        {"schedule": "naive"},
        {"compression": "int8"},
    ],
    ids=str,
)
def test_every_setting_changes_something(settings: dict[str, Any]) -> None:
    changes_something("diloco", settings, {"interval": 3}, EVEN)


@pytest.mark.parametrize("settings", [{}, {"interval": 5}, {"interval": 4, "compression": "int8"}], ids=str)
def test_without_values_it_takes_the_same_time(settings: dict[str, Any]) -> None:
    takes_the_same_time_without_values("diloco", UNEVEN, **settings)


def test_it_ends_with_the_rank_that_is_lost() -> None:
    run = train("diloco", EVEN, faults=["kind: crash, node: n2, at: 9 ms"], interval=3)
    assert all(lost_somebody(result) for result in run.results[:2])
