"""Shares of a total by rate, and shards in proportion to batches."""

from __future__ import annotations

import pytest

from simcluster.errors import UsageError
from simcluster.workloads import mnist_mlp
from simcluster.workloads.shares import by_rate


@pytest.mark.parametrize(
    ("total", "rates", "shares"),
    [
        (160, (1, 1), [80, 80]),
        (10, (3, 1), [8, 2]),  # 7.5 and 2.5: both remainders are a half, and the first takes it
        (10, (1, 1, 1), [4, 3, 3]),
        (100, (1000, 1000, 1), [50, 49, 1]),  # 49.98, 49.98, 0.05: at least 1 each
        (3, (1000, 1, 1), [1, 1, 1]),
        (7, (5, 2), [5, 2]),
    ],
)
def test_shares_add_up_and_none_is_empty(total: int, rates: tuple[float, ...], shares: list[int]) -> None:
    found = by_rate(total, rates)
    assert sum(found) == total
    assert found == shares


def test_a_bigger_batch_gets_a_bigger_shard_and_all_pass_over_theirs_equally_fast() -> None:
    # mnist_mlp trains on 400 of its 500 images; batches of 8, 4 and 4 have 2, 1 and 1 units of 4.
    model = mnist_mlp().with_batches((8, 4, 4))
    whole = len(model.train_samples)
    shards = model.shards(3, 0)
    assert [len(shard) for shard in shards] == [whole // 2, whole // 4, whole // 4]
    assert len({int(sample) for shard in shards for sample in shard}) == whole
    assert model.replica(0, 3, 0, epochs=1).steps == -(-whole // 16)


def test_an_uneven_partition_fills_every_batch() -> None:
    model = mnist_mlp(partition="dirichlet", alpha=0.1, batch_size=4).with_batches((40, 4))
    assert [len(shard) >= least for shard, least in zip(model.shards(2, 0), (40, 4), strict=True)] == [True, True]


def test_a_batch_larger_than_its_shard_is_refused_with_the_rank() -> None:
    model = mnist_mlp()
    whole = len(model.train_samples)
    with pytest.raises(UsageError, match=f"{2 * whole + 1} samples on 2 ranks together, expected at most {whole}"):
        model.with_batches((2 * whole, 1)).shards(2, 0)
    with pytest.raises(UsageError, match="2 sizes, expected 3, one per rank"):
        model.with_batches((2, 1)).replica(0, 3, 0, 1)
