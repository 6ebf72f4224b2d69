"""A new deal in each epoch, and the samples that are left over: sizes, use, resumption, refusals."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler, TensorDataset

from simcluster.errors import UsageError
from simcluster.experiment.read.read import read_experiment
from simcluster.workloads import Workload, iid, mnist_mlp, redeal, sgd
from simcluster.workloads.data.partition import Tail
from tests.support.kept import MNIST, config, hashes, play, play_on

REDEALT = {**MNIST, "partition": "redeal"}


def of(samples: int, partition: Any, batch_size: int = 1) -> Workload:
    """Samples that are their own numbers."""
    numbers = torch.arange(samples, dtype=torch.float32)[:, None]
    return Workload(
        model=lambda: torch.nn.Linear(1, 1), loss=torch.nn.functional.mse_loss, train=TensorDataset(numbers, numbers),
        optimizer=sgd(0.1), batch_size=batch_size, partition=partition,
    )  # fmt: skip


def drawn(workload: Workload, rank: int, size: int, count: int) -> list[int]:
    """The numbers of the first *count* samples that *rank* draws."""
    batches = workload.replica(rank, size, 7, -(-count // workload.batch_size)).batches()
    return [int(number) for batch in batches for number in batch.inputs[:, 0]][:count]


def test_each_epoch_deals_every_sample_to_one_rank_and_to_another_rank_than_before() -> None:
    """12 samples on 3 ranks: 4 each, and three epochs are 12 draws of each rank."""
    owners = [drawn(of(12, redeal), rank, 3, 12) for rank in range(3)]
    epochs = [[sorted(own[4 * epoch : 4 * epoch + 4]) for own in owners] for epoch in range(3)]
    for dealt in epochs:
        assert sorted(number for own in dealt for number in own) == list(range(12))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    before = [sorted(drawn(of(12, iid), rank, 3, 12)[4:8]) for rank in range(3)]
    assert before == epochs[0], "the first deal is that of iid, which keeps it"


def test_a_batch_that_spans_two_epochs_takes_the_rest_of_one_deal_and_the_first_of_the_next() -> None:
    """10 samples on 2 ranks are 5 each: batches of 3 end at 3, 6, 9, and the second spans the epochs."""
    assert drawn(of(10, redeal, 3), 1, 2, 15) == drawn(of(10, redeal, 1), 1, 2, 15)


@pytest.mark.parametrize("samples", [12, 10, 9, 5])
@pytest.mark.parametrize("tail", ["pad", "drop"])
def test_the_tail_is_padded_or_dropped_as_by_torchs_distributed_sampler(samples: int, tail: Tail) -> None:
    sampler = partial(DistributedSampler, range(samples), num_replicas=4, drop_last=tail == "drop")
    theirs = [list(sampler(rank=rank)) for rank in range(4)]
    shards = of(samples, partial(redeal, tail=tail)).shards(4, 0, 1)
    assert [len(shard) for shard in shards] == [len(own) for own in theirs]
    times = Counter(Counter(number for own in theirs for number in own).values())
    assert Counter(Counter(number for shard in shards for number in shard.tolist()).values()) == times


@pytest.mark.parametrize(("tail", "steps"), [("keep", 3), ("pad", 3), ("drop", 2)])
def test_an_epoch_has_as_many_steps_as_the_shards_have_batches(tail: Tail, steps: int) -> None:
    """10 samples on 4 ranks, one per step: 3, 3, 2, 2 as they are; 3 each padded; 2 each dropped."""
    assert of(10, partial(iid, tail=tail)).replica(0, 4, 0, epochs=1).steps == steps


def test_old_deals_are_made_again_if_they_are_asked_for() -> None:
    workload = of(40, redeal)
    first = [shard.tolist() for shard in workload.shards(2, 0)]
    for epoch in range(30):
        workload.shards(2, 0, epoch)
    assert len(workload._shards) < 30
    assert [shard.tolist() for shard in workload.shards(2, 0)] == first


TEXT = {"name": "gpt", "partition": "redeal", "tail": "drop", "width": 4, "context": 3, "data": "text"}


@pytest.mark.parametrize("workload", [{**REDEALT, "batch_size": 500}, {**TEXT, "batch_size": 4}], ids=["mnist", "gpt"])
def test_a_run_that_resumes_in_its_second_epoch_is_dealt_what_it_would_have_been(
    workload: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 images on 4 ranks in batches of 500 are 2 steps an epoch: step 3 is in the middle of the second.

    36 of 40 bytes train, in 33 windows; without the last one, these are 2 batches of 4 on each rank.
    """
    monkeypatch.chdir(tmp_path)
    Path("text").write_bytes(bytes(range(40)))
    whole = play(config("all_reduce_dp", workload, steps=5) | {"checkpoint": {"every": 3}}, tmp_path)
    rest = play_on(tmp_path, 3)
    assert hashes(rest) == hashes(whole)
    used = 5 * 4 * workload["batch_size"]
    assert rest.extra["samples"] == {"used": used, "lost": 0, "repeated": 0} == whole.extra["samples"]
    fixed = play(config("all_reduce_dp", workload | {"partition": "iid"}, steps=5), tmp_path / "fixed")
    assert hashes(fixed) != hashes(whole)


@pytest.mark.parametrize(("tail", "batch", "used", "repeated"), [("pad", 667, 4002, 2), ("drop", 1333, 3999, 0)])
def test_padded_samples_count_as_repeated_and_dropped_ones_as_unused(
    tail: Tail, batch: int, used: int, repeated: int, tmp_path: Path
) -> None:
    """4,000 images on 3 ranks: 1,334 each padded, 2 of them twice; 1,333 each dropped, one left out."""
    workload = {**REDEALT, "tail": tail, "batch_size": batch}
    shape = {"generator": "star", "workers": 3, "device": "raspberry-pi-5"}
    experiment = config("all_reduce_dp", workload) | {"stop": {"epochs": 1}, "topology": shape}
    record = play(experiment, tmp_path)
    assert record.extra["samples"] == {"used": used, "lost": 0, "repeated": repeated}
    assert len(set(record.extra["columns"].columns["sample"])) == min(4000, used)


def test_a_tail_of_a_partition_of_ones_own_is_its_own() -> None:
    """10 samples on 4 ranks are 3 steps, since the function deals all of them."""

    def own(labels: Any, shards: int, rng: Any, tail: float) -> list[Any]:
        return iid(labels, shards, rng)

    assert of(10, partial(own, tail=0.5)).replica(0, 4, 0, epochs=1).steps == 3


def test_a_tail_is_refused_where_shards_differ_on_purpose() -> None:
    with pytest.raises(UsageError, match="tail: found 'pad', expected keep with dirichlet"):
        mnist_mlp(partition="dirichlet", tail="pad")


def test_a_text_is_not_dealt_by_class() -> None:
    with pytest.raises(UsageError, match="found 'dirichlet', expected 'iid' or 'redeal', since a text has no classes"):
        read_experiment(config("all_reduce_dp", {"name": "gpt", "partition": "dirichlet"}))
