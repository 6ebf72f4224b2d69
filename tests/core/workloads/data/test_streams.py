"""The batches of all ranks as one, and one batch in micro-batches."""

from __future__ import annotations

import pytest
import torch

from simcluster.workloads import joined_batches, mnist_mlp
from simcluster.workloads.data.streams import micro_batches

WORKLOAD = mnist_mlp(hidden=4, batch_size=6)


@pytest.mark.parametrize("size", [1, 3])
def test_every_rank_draws_the_batches_of_all_by_itself(size: int) -> None:
    replicas = [WORKLOAD.replica(rank, size, 5, 4) for rank in range(size)]
    expected = list(joined_batches(replicas))
    for replica in replicas:
        for mine, batch in zip(replica.joined_batches(), expected, strict=True):
            assert torch.equal(mine.inputs, batch.inputs)
            assert torch.equal(mine.targets, batch.targets)
            assert mine.step == batch.step
            assert len(mine) == size * 6


def test_without_values_they_are_as_large_and_as_many() -> None:
    real, none = (WORKLOAD.replica(1, 3, 5, 4, numerics=numerics) for numerics in ("real", "none"))
    for computed, timed in zip(real.joined_batches(), none.joined_batches(), strict=True):
        assert (computed.inputs.shape, computed.targets.shape) == (timed.inputs.shape, timed.targets.shape)
        assert computed.step == timed.step


def test_micro_batches_are_the_batch_in_order_and_of_one_size() -> None:
    batch = next(WORKLOAD.replica(0, 1, 5, 1).batches())
    parts = micro_batches(batch, 3)
    assert [len(part) for part in parts] == [2, 2, 2]
    assert torch.equal(torch.cat([part.inputs for part in parts]), batch.inputs)
    assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)
    with pytest.raises(ValueError, match="a batch of 6 does not divide into 4 micro-batches of one size"):
        micro_batches(batch, 4)
