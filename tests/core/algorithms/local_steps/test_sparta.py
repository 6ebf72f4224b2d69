"""SPARTA: what travels. The law of how soon a weight is shared is in experiments/papers."""

from __future__ import annotations

from simcluster.lab.verify.claims.local_steps import shared_at
from simcluster.workloads import quadratic
from tests.core.algorithms.trained import (
    SEED,
    train,
)


def test_no_index_travels_and_of_the_weights_only_what_is_shared() -> None:
    run = train("sparta", 2, workload=quadratic(features=1000, dtype="float64"), steps=5, fraction=0.1)
    for step in range(1, 6):
        number = int(shared_at(step, 1000, SEED, 0.1).sum())
        # A ring over two: each half goes one way in each phase, from both; 8 bytes a number, and a header each.
        sizes = run.sizes(f"average/{step}/")
        assert len(sizes) == 4
        assert 2 * 8 * number < sum(sizes) < 2 * 8 * number + 4 * 100
