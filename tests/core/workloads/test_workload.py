"""Workloads: the same initial weights everywhere, equal numbers of steps, all errors at once."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from simcluster.errors import UsageError
from simcluster.workloads import Workload, dirichlet, mnist_mlp, quadratic, sgd


class TwoTowers(nn.Module):
    """A model as a user writes one."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, 16), nn.Linear(2, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.left(points)) * torch.relu(self.right(points)))


def make_workload(*, learning_rate: float = 0.5) -> Workload:
    points = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (400, 2))).float()
    inside = (points.norm(dim=1) < 0.8).long()
    return Workload(
        model=TwoTowers,
        loss=nn.functional.cross_entropy,
        train=TensorDataset(points[:320], inside[:320]),
        test=(points[320:], inside[320:]),
        optimizer=sgd(learning_rate),
        batch_size=16,
    )


def a_workload(**changes) -> Workload:
    settings = {
        "model": lambda: nn.Linear(2, 3),
        "loss": nn.functional.cross_entropy,
        "train": (torch.ones(30, 2), torch.arange(30) % 3),
        "optimizer": sgd(0.1),
        "batch_size": 5,
    }
    return Workload(**settings | changes)


def test_a_model_loss_and_dataset_of_ones_own_learn():
    replica = make_workload().replica(rank=0, size=2, seed=0, epochs=40)
    before = replica.evaluate()
    for batch in replica.batches():
        _, gradients = replica.loss_and_gradients(batch)
        replica.apply(gradients)
    after = replica.evaluate()
    assert after["accuracy"] > 0.9 > before["accuracy"]


def test_initial_weights_are_the_same_on_every_rank_and_differ_by_seed():
    workload = make_workload()
    hashes = {workload.replica(rank, size, 3, 1).weights_sha256() for size in (1, 4) for rank in range(size)}
    assert len(hashes) == 1
    assert workload.replica(0, 1, 4, 1).weights_sha256() not in hashes


def test_making_replicas_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    make_workload().replica(0, 2, 0, 1)
    assert torch.equal(before, torch.get_rng_state())


def test_every_rank_takes_the_same_number_of_steps_whatever_its_shard():
    workload = mnist_mlp(partition="dirichlet", alpha=0.1, hidden=8)
    replicas = [workload.replica(rank, 5, 0, epochs=1) for rank in range(5)]
    # 4,000 images / (5 ranks * 32) = 25.
    assert [replica.steps for replica in replicas] == [25] * 5
    assert len({replica.shard_size for replica in replicas}) > 1
    assert sum(replica.shard_size for replica in replicas) == 4000
    # The smallest shard is below 25 batches, and is cycled over.
    smallest = min(replicas, key=lambda replica: replica.shard_size)
    assert smallest.shard_size < 25 * 32
    assert len(list(smallest.batches())) == 25


@pytest.mark.parametrize(
    ("samples", "size", "epochs", "steps"),
    [
        (100, 1, 1, 20),  # 100 / 5
        (100, 3, 1, 7),  # 100 / 15, rounded up
        (100, 1, 2.5, 50),
        (500, 1, 0.07, 7),  # 0.07 * 100 is 7, though a little more in binary
        (100, 1, 0.001, 1),  # never none at all
    ],
)
def test_epochs_become_steps_rounded_up(samples, size, epochs, steps):
    workload = a_workload(train=(torch.ones(samples, 2), torch.zeros(samples, dtype=torch.int64)))
    assert workload.replica(0, size, 0, epochs=epochs).steps == steps


@pytest.mark.parametrize("stop", [{}, {"steps": 1, "epochs": 1}, {"steps": 0}, {"epochs": 0}, {"epochs": float("nan")}])
def test_a_stop_that_is_missing_double_or_not_positive_is_refused(stop):
    with pytest.raises(UsageError):
        a_workload().replica(0, 1, 0, **stop)


def test_a_batch_larger_than_the_smallest_shard_is_refused_with_rank_and_size():
    # 30 samples by 4 ranks are shards of 8, 8, 7 and 7.
    with pytest.raises(UsageError, match=r"batch_size: found 8, expected at most 7, .* of rank 2 of 4, the smallest"):
        a_workload(batch_size=8).replica(0, 4, 0, 1)
    assert a_workload(batch_size=7).replica(3, 4, 0, 1).shard_size == 7


def test_everything_wrong_with_a_workload_is_told_at_once():
    with pytest.raises(UsageError) as caught:
        a_workload(
            batch_size=0,
            clip_norm=float("nan"),
            train=(torch.ones(3, 2), torch.ones(4)),
            test=(torch.ones(0, 2), torch.ones(0)),
        )
    assert [problem.key for problem in caught.value.problems] == ["batch_size", "clip_norm", "train", "test"]


def test_a_model_without_anything_to_train_is_refused():
    with pytest.raises(UsageError, match="no trainable parameter"):
        a_workload(model=nn.ReLU).replica(0, 1, 0, 1)


def test_a_partition_of_ones_own_is_used_and_checked():
    def halves(targets, shards, rng):
        return np.array_split(np.arange(len(targets)), shards)

    replica = a_workload(partition=halves, train=(torch.arange(30.0).reshape(30, 1), torch.zeros(30))).replica
    assert sorted(torch.cat([b.inputs for b in _batches(replica)]).flatten().tolist()) == list(range(15, 30))
    with pytest.raises(UsageError, match="found 1 shards, expected 2"):
        a_workload(partition=lambda targets, shards, rng: [np.arange(30)]).replica(0, 2, 0, 1)


def _batches(replica):
    return replica(1, 2, 0, 3).batches()


def test_dirichlet_over_targets_that_are_no_classes_is_refused():
    workload = a_workload(partition=partial(dirichlet, alpha=0.5), train=(torch.ones(30, 2), torch.ones(30, 1)))
    with pytest.raises(UsageError, match="integer class labels"):
        workload.replica(0, 2, 0, 1)


def test_a_rank_outside_the_world_is_refused():
    with pytest.raises(ValueError, match="rank 2 of 2"):
        quadratic().replica(2, 2, 0, 1)


def test_naming_a_workload_renames_its_work_and_reads_nothing_again():
    workload = a_workload()
    samples = workload.train_samples
    plain, named = (each.replica(0, 1, 0, 1) for each in (workload, workload.named("mine")))
    assert (plain.apply_cost().kind, named.apply_cost().kind) == ("", "mine/apply")
    assert workload.named("mine").train_samples is samples
    assert workload.named("mine").named("other").name == "mine"
    assert workload.name == ""
