"""Iterable sets: dealt out by number, the same for one process and for many, refused if they cannot be read again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from simcluster.errors import UsageError
from simcluster.workloads import Workload, dirichlet, joined_batches, sgd
from tests.core.workloads.own_forms import CLASSES, Numbered, iterable


def numbers(batch: Any) -> list[int]:
    return [round(value * 10) for value in batch.inputs[:, 0].tolist()]


def workload_of(train: Any, **changes: Any) -> Workload:
    model, loss = lambda: nn.Linear(4, CLASSES), nn.functional.cross_entropy
    return Workload(**{"model": model, "loss": loss, "train": train, "optimizer": sgd(0.1), "batch_size": 2, **changes})


def test_ranks_take_turns_and_a_pass_follows_the_other() -> None:
    # Two samples for each of three ranks: 6 per step, and after item 9 comes item 0 again.
    replicas = [workload_of(Numbered(10)).replica(rank, 3, 0, 3) for rank in range(3)]
    drawn = [[numbers(batch) for batch in replica.batches()] for replica in replicas]
    assert drawn == [[[0, 1], [6, 7], [2, 3]], [[2, 3], [8, 9], [4, 5]], [[4, 5], [0, 1], [6, 7]]]


def test_joined_batches_are_those_of_one_process() -> None:
    three = [workload_of(Numbered(11)).replica(rank, 3, 0, 4) for rank in range(3)]
    one = workload_of(Numbered(11), batch_size=6).replica(0, 1, 0, 4)
    assert [numbers(batch) for batch in joined_batches(three)] == [numbers(batch) for batch in one.batches()]
    assert [numbers(batch) for batch in three[0].joined_batches()] == [numbers(batch) for batch in one.batches()]


def test_sizes_by_rank_are_slices_of_the_joined_batch() -> None:
    sizes = workload_of(Numbered(40)).with_batches([3, 1, 2])
    drawn = [[numbers(batch) for batch in sizes.replica(rank, 3, 0, 2).batches()] for rank in range(3)]
    assert drawn == [[[0, 1, 2], [6, 7, 8]], [[3], [9]], [[4, 5], [10, 11]]]


def test_a_replica_that_resumes_draws_what_comes_next() -> None:
    replica = workload_of(Numbered(10)).replica(1, 2, 0, 6)
    every = [numbers(batch) for batch in replica.batches()]
    assert [numbers(batch) for batch in replica.batches(4)] == every[4:]
    assert [batch.step for batch in replica.batches(4)] == [4, 5]
    assert list(replica.batches(6)) == []


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return ((torch.full((4,), number / 10), number % CLASSES) for number in count())


def test_an_endless_set_is_read_as_far_as_needed() -> None:
    replica = workload_of(Endless()).replica(0, 1, 0, 3)
    assert [numbers(batch) for batch in replica.batches()] == [[0, 1], [2, 3], [4, 5]]
    loader = DataLoader(Endless(), batch_size=7)
    assert [numbers(b) for b in workload_of(loader).replica(0, 1, 0, 2).batches()] == [[0, 1], [2, 3]]


class Drifting(IterableDataset[Any]):
    """A set that begins elsewhere in each pass."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[Any]:
        self.passes += 1
        return iter([(torch.full((4,), float(self.passes)), 0)] * 4)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train": (pair for pair in [])}, "train: found a generator, an iterator, which can be read only once"),
        ({"train": Drifting()}, "second pass yields other items than its first"),
        ({"train": Numbered(0)}, "train: found 0 samples"),
        ({"train": Numbered(9), "partition": dirichlet}, "partition: .* dealt out in its own order"),
        ({"train": Numbered(9), "test": Numbered(9)}, r"test: found an iterable set.*itertools.islice"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused_with_the_reason(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        workload_of(**changes)


def test_epochs_of_an_unknown_length_are_refused() -> None:
    with pytest.raises(UsageError, match=r"stop: found epochs=1 of an iterable set.*expected steps"):
        iterable().replica(0, 1, 0, epochs=1)
