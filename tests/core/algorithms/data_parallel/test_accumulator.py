"""Every contribution is in exactly one sum, or refused; nothing is kept longer than its sum takes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simcluster.algorithms.data_parallel.accumulator import Accumulator


def test_the_sum_is_taken_in_rank_order_whatever_came_first() -> None:
    parts = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]  # float32: (1e8 + 1) - 1e8 is 0
    accumulator = Accumulator(3)
    for rank in (2, 0, 1):
        assert not accumulator.is_complete(1, 0)
        assert accumulator.add(1, 0, rank, parts[rank]) == "taken"
    assert accumulator.take(1, 0).item() == 0.0
    assert (accumulator.applied, accumulator.rejected, accumulator.waiting) == (3, 0, 0)


def test_what_is_there_already_or_too_late_is_refused_and_leaves_nothing() -> None:
    accumulator = Accumulator(2)
    accumulator.add(1, 0, 0, torch.tensor(1.0))
    assert accumulator.add(1, 0, 0, torch.tensor(100.0)) == "duplicate"
    accumulator.add(1, 0, 1, torch.tensor(2.0))
    assert accumulator.take(1, 0).item() == 3.0
    assert accumulator.add(1, 0, 1, torch.tensor(100.0)) == "stale", "a late gradient makes no new slot"
    assert accumulator.add(0, 0, 1, torch.tensor(100.0)) == "stale"
    assert (accumulator.applied, accumulator.rejected, accumulator.waiting) == (2, 3, 0)
    assert accumulator.add(1, 1, 0, torch.tensor(1.0)) == "taken", "of another shard it is not late"


def test_steps_that_were_passed_over_are_dropped_with_the_next_sum() -> None:
    accumulator = Accumulator(2)
    accumulator.add(1, 0, 0, torch.tensor(1.0))  # rank 1 never contributes to step 1
    accumulator.add(3, 0, 0, torch.tensor(1.0))
    for rank in (0, 1):
        accumulator.add(2, 0, rank, torch.tensor(5.0))
    assert accumulator.take(2, 0).item() == 10.0
    assert (accumulator.applied, accumulator.rejected, accumulator.waiting) == (2, 1, 1), "step 3 is still to come"


def test_an_incomplete_sum_and_a_rank_that_is_none_are_errors() -> None:
    accumulator = Accumulator(3)
    accumulator.add(7, 2, 1, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"step 7 of shard 2 has contributions of ranks \[1\] of 3 only"):
        accumulator.take(7, 2)
    with pytest.raises(ValueError, match="a contribution of rank 3: expected 0 to 2"):
        accumulator.add(1, 0, 3, torch.tensor(1.0))
    with pytest.raises(ValueError, match="for 0 ranks"):
        Accumulator(0)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 2)), max_size=60))
def test_what_was_added_is_applied_or_rejected_or_waits(contributions: list[tuple[int, int, int]]) -> None:
    accumulator, taken = Accumulator(3), 0
    for step, shard, rank in contributions:
        verdict = accumulator.add(step, shard, rank, torch.ones(1))
        if verdict == "taken" and accumulator.is_complete(step, shard):
            assert accumulator.take(step, shard).item() == 3.0
            taken += 1
    assert accumulator.applied == 3 * taken
    assert accumulator.applied + accumulator.rejected + accumulator.waiting == len(contributions)
    # Of a shard at most the steps after the last one taken are held: 4 steps, 3 shards, 2 of 3 ranks.
    assert accumulator.waiting <= 4 * 3 * 2
