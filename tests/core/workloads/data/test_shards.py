"""Shards for batches of different sizes."""

from __future__ import annotations

import math

import numpy as np
import pytest

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
