"""A replica without numbers: what an algorithm may do with it, and what it must not."""

import pytest
import torch

from simcluster.errors import UsageError
from simcluster.unknown_number import UnknownNumber
from simcluster.workloads import Batch, Workload, mnist_mlp, quadratic, sgd
from tests.core.workloads.costs.test_sketch import NUMBERS, workload_of


def replica_of(workload: Workload | None = None, rank: int = 0, **stop: float):
    return (workload or mnist_mlp()).replica(rank, 5, 0, **(stop or {"steps": 3}), numerics="none")


def test_it_has_as_many_batches_as_a_real_one_by_steps_or_epochs():
    for stop in ({"steps": 7}, {"epochs": 0.3}, {"epochs": 2}):
        real, none = (mnist_mlp().replica(1, 5, 0, **stop, numerics=numerics) for numerics in ("real", "none"))
        assert [batch.step for batch in none.batches()] == [batch.step for batch in real.batches()]
        assert none.steps == real.steps
        assert none.batch_size == real.batch_size


def test_its_loss_is_unknown_and_it_has_no_weights_to_hash():
    replica = replica_of()
    loss, gradients = replica.loss_and_gradients(next(replica.batches()))
    assert isinstance(loss, UnknownNumber)
    assert [gradient.shape for gradient in gradients] == [parameter.shape for parameter in replica.parameters]
    assert replica.weights_sha256() is None
    assert {name: type(value) for name, value in replica.evaluate().items()} == {
        "loss": UnknownNumber,
        "accuracy": UnknownNumber,
    }
    assert list(replica_of(quadratic()).evaluate()) == ["loss"]


def test_tensors_of_another_shape_or_number_are_refused_as_by_a_real_one():
    replica = replica_of()
    for method in (replica.apply, replica.load, replica.evaluate_weights):
        with pytest.raises(ValueError, match=r"1 (gradients|parameters), but the model has 4"):
            method(replica.snapshot()[:1])
        with pytest.raises(ValueError, match="has shape"):
            method(replica.snapshot()[::-1])


def test_a_shape_changed_in_place_is_nobody_elses():
    one, other = replica_of(), replica_of(rank=1)
    for tensors in (one.parameters, one.snapshot(), one.loss_and_gradients(next(one.batches()))[1]):
        tensors[0].unsqueeze_(0)
    for tensors in (other.parameters, other.snapshot(), other.loss_and_gradients(next(other.batches()))[1]):
        assert tensors[0].shape == (128, 784)


def test_data_too_small_for_the_cluster_are_no_hindrance_since_nothing_is_dealt_out():
    # 4,000 images are fewer than 32 each for 1,000 ranks.
    with pytest.raises(UsageError, match="batch_size"):
        mnist_mlp().replica(0, 1000, 0, 1)
    replica = mnist_mlp().replica(0, 1000, 0, 1, numerics="none")
    assert len(next(replica.batches())) == 32
    assert replica.shard_size == 0


def test_data_need_not_be_there_either():
    huge = torch.empty((10**9, 8), device="meta"), torch.empty(10**9, device="meta")
    workload = workload_of(lambda: torch.nn.Linear(8, 3), NUMBERS, train=huge, optimizer=sgd(0.1))
    assert next(replica_of(workload).batches()).inputs.shape == NUMBERS
    with pytest.raises(UsageError, match="train: found tensors without values, expected values, or numerics: none"):
        workload.replica(0, 5, 0, 1)


def test_batches_of_ones_own_making_may_be_parts_of_a_batch():
    replica = replica_of()
    batch = next(replica.batches())
    quarters = [Batch(*parts) for parts in zip(batch.inputs.split(8), batch.targets.split(8), strict=True)]
    assert len(quarters) == 4
    one = replica.gradient_cost(quarters[0])
    # Products are linear in the size of the batch.
    assert 4 * one.flops == replica.gradient_cost(batch).flops
