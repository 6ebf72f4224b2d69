"""Shards for batches of different sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simcluster.errors import UsageError
from simcluster.rng import numpy_stream
from simcluster.workloads.data import shards
from simcluster.workloads.data.partition import iid


def test_the_unit_of_all_batches_is_found_once_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []

    def gcd(*numbers: int) -> int:
        asked.append(numbers)
        return math.gcd(*numbers)

    monkeypatch.setattr(shards, "math", type("Counted", (), {"gcd": staticmethod(gcd)}))
    found = shards.shards_for((4, 8, 4), iid, np.zeros(40, int), numpy_stream(0, "partition"))
    assert [len(shard) for shard in found] == [10, 20, 10]
    assert asked == [(4, 8, 4)]


def test_batches_of_more_samples_than_there_are_name_both_numbers() -> None:
    # 7 and 4 have no common divisor: 11 parts of 10 samples.
    with pytest.raises(UsageError, match="batch_size: found 11 samples on 2 ranks together, expected at most 10"):
        shards.shards_for([7, 4], iid, np.zeros(10), np.random.default_rng(0))
