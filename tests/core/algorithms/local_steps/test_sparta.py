"""SPARTA: against the naive loop, averaging, and the law of how soon a coordinate is shared."""

from __future__ import annotations

import math

import pytest
import torch

from simcluster.lab.verify.claims.local_steps import shared_at
from simcluster.lab.verify.claims.local_steps import sparta as reference
from simcluster.workloads import quadratic
from tests.core.algorithms.trained import (
    EVEN,
    SEED,
    WORKLOAD,
    changes_something,
    close,
    lost_somebody,
    takes_the_same_time_without_values,
    train,
)

STILL = quadratic(features=1000, samples=64, batch_size=4, learning_rate=1e-300, dtype="float64")
"""Whatever moves, moves by averaging."""


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("fraction", [0.05, 0.5])
def test_it_is_the_naive_loop(fraction: float, size: int) -> None:
    run = train("sparta", size, fraction=fraction)
    close(run.weights, reference(WORKLOAD, size, SEED, 12, {"fraction": fraction}))


def test_with_all_coordinates_it_is_averaging_every_step() -> None:
    close(train("sparta", 3, fraction=1.0).weights, train("local_sgd", 3, interval=1).weights)


@pytest.mark.parametrize(("p", "steps"), [(0.05, 20), (0.1, 3), (0.5, 4)])
def test_a_coordinate_is_shared_at_least_once_in_n_steps_with_the_probability_of_the_law(p: float, steps: int) -> None:
    apart = [torch.full((1000,), weight) for weight in (1.0, 3.0)]
    run = train("sparta", 2, workload=STILL, steps=steps, fraction=p, begin=apart)
    first, second = run.vectors
    shared = int((first == second).sum())
    assert set(first.tolist()) == {1.0, 2.0}, "shared is the mean, and what is not is as it was"
    chance = 1 - (1 - p) ** steps
    assert abs(shared - 1000 * chance) < 3 * math.sqrt(1000 * chance * (1 - chance))


def test_no_index_travels_and_of_the_weights_only_what_is_shared() -> None:
    run = train("sparta", 2, workload=STILL, steps=5, fraction=0.1)
    for step in range(1, 6):
        number = int(shared_at(step, 1000, SEED, 0.1).sum())
        # A ring over two: each half goes one way in each phase, from both; 8 bytes a number, and a header each.
        sizes = run.sizes(f"average/{step}/")
        assert len(sizes) == 4
        assert 2 * 8 * number < sum(sizes) < 2 * 8 * number + 4 * 100


def test_its_setting_changes_something() -> None:
    changes_something("sparta", {"fraction": 0.5}, {}, EVEN)


@pytest.mark.parametrize("fraction", [0.05, 0.5, 1.0])
def test_without_values_it_takes_the_same_time(fraction: float) -> None:
    takes_the_same_time_without_values("sparta", fraction=fraction)


def test_it_ends_with_the_rank_that_is_lost() -> None:
    run = train("sparta", EVEN, faults=["kind: crash, node: n2, at: 9 ms"])
    assert all(lost_somebody(result) for result in run.results[:2])
