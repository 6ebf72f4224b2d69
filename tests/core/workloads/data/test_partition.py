"""Shards: disjoint, complete, never empty, the same for the same seed."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcluster.errors import UsageError
from simcluster.rng import numpy_stream
from simcluster.workloads.data.partition import dirichlet, iid

ALPHAS = st.floats(1e-3, 1e3)


def labels_of(count: int, classes: int = 10) -> np.ndarray:
    return np.arange(count) % classes


def assert_is_a_partition(shards: list[np.ndarray], samples: int) -> None:
    assert np.array_equal(np.sort(np.concatenate(shards)), np.arange(samples))
    for shard in shards:
        assert len(shard) > 0
        assert np.array_equal(shard, np.sort(shard))


@given(samples=st.integers(1, 300), share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_iid_gives_every_sample_to_exactly_one_shard_and_sizes_differ_by_at_most_one(samples, share, seed):
    shards = 1 + int(share * (samples - 1))
    dealt = iid(labels_of(samples), shards, numpy_stream(seed, "partition"))
    assert_is_a_partition(dealt, samples)
    sizes = [len(shard) for shard in dealt]
    assert max(sizes) - min(sizes) <= 1


@given(
    samples=st.integers(1, 300),
    share=st.floats(0, 1),
    classes=st.integers(1, 12),
    alpha=ALPHAS,
    seed=st.integers(0, 2**32),
)
def test_dirichlet_gives_every_sample_to_exactly_one_shard(samples, share, classes, alpha, seed):
    shards = 1 + int(share * (samples - 1))
    dealt = dirichlet(labels_of(samples, classes), shards, alpha, numpy_stream(seed, "partition"))
    assert_is_a_partition(dealt, samples)


@given(at_least=st.integers(1, 20), alpha=ALPHAS, seed=st.integers(0, 2**32))
def test_dirichlet_leaves_no_shard_below_the_given_minimum(at_least, alpha, seed):
    rng = numpy_stream(seed, "partition")
    dealt = dirichlet(labels_of(100), 5, alpha, rng, at_least=at_least)
    assert_is_a_partition(dealt, 100)
    assert min(len(shard) for shard in dealt) >= at_least


@pytest.mark.parametrize("deal", [iid, partial(dirichlet, alpha=0.5)])
def test_the_same_seed_deals_the_same_shards_and_another_deals_others(deal):
    once, again, other = (deal(labels_of(200), 4, rng=numpy_stream(seed, "partition")) for seed in (7, 7, 8))
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(once, other, strict=True))


def test_a_small_alpha_makes_shards_of_few_classes_and_a_large_one_mixes_them():
    labels = labels_of(2000)

    def largest_class_share(alpha: float) -> float:
        shards = dirichlet(labels, 5, alpha, numpy_stream(0, "partition"))
        return float(np.mean([np.bincount(labels[shard]).max() / len(shard) for shard in shards]))

    # Ten equal classes: 0.1 in a perfect mixture.
    assert largest_class_share(1000.0) < 0.12
    assert largest_class_share(0.5) > 0.2
    assert largest_class_share(0.01) > 0.4


def test_more_shards_than_samples_is_refused_with_both_numbers():
    with pytest.raises(UsageError, match=r"found 3 samples, expected at least 4"):
        iid(labels_of(3), 4, numpy_stream(0))
    # 5 shards of 10 at least need 50.
    with pytest.raises(UsageError, match=r"found 49 samples, expected at least 50"):
        dirichlet(labels_of(49), 5, 0.5, numpy_stream(0), at_least=10)


@pytest.mark.parametrize("labels", [np.linspace(0, 1, 9), np.zeros((9, 2), dtype=np.int64)])
def test_dirichlet_refuses_targets_that_are_not_classes(labels):
    with pytest.raises(UsageError, match="integer class labels"):
        dirichlet(labels, 3, 0.5, numpy_stream(0))


@pytest.mark.parametrize("alpha", [0.0, -1.0, float("nan"), float("inf")])
def test_dirichlet_refuses_an_alpha_that_is_not_a_positive_number(alpha):
    with pytest.raises(UsageError, match="alpha"):
        dirichlet(labels_of(9), 3, alpha, numpy_stream(0))
