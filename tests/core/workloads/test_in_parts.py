"""A replica held in parts trains to the bits of one held whole, with the same costs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from simcluster.workloads import Replica, Workload, adamw, mnist_mlp
from simcluster.workloads.models.gpt import gpt
from simcluster.workloads.weights import Digest, weights_sha256


def pair_of(workload: Workload, size: int = 2) -> list[Replica]:
    return [workload.replica(1, size, 7, 3, in_parts=in_parts) for in_parts in (False, True)]


@pytest.mark.parametrize("workload", [mnist_mlp(), gpt()], ids=["mnist_mlp", "gpt"])
def test_costs_weights_and_hash_are_those_of_a_whole_replica(workload: Workload) -> None:
    whole, parted = pair_of(workload)
    assert parted.is_in_parts
    batch = next(whole.batches())
    assert parted.gradient_cost(batch) == whole.gradient_cost(batch)
    assert parted.layer_costs(batch) == whole.layer_costs(batch)
    assert parted.apply_cost() == whole.apply_cost()
    assert parted.weights_sha256() == whole.weights_sha256()
    assert all(map(torch.equal, parted.parameters, whole.parameters))
    for replica in (whole, parted):
        replica.apply(replica.loss_and_gradients(batch)[1])
    assert all(map(torch.equal, parted.parameters, whole.parameters))


def test_a_part_takes_memory_for_itself_alone_and_steps_alike() -> None:
    workload = mnist_mlp()
    whole, parted = pair_of(workload)
    parts = [replica.part([0, 1]) for replica in (whole, parted)]
    gradients = [torch.ones_like(tensor) for tensor in parts[0].parameters]
    for part in parts:
        part.apply([gradient.clone() for gradient in gradients])
    assert all(map(torch.equal, parts[0].parameters, parts[1].parameters))
    held = [tensor.untyped_storage().nbytes() for tensor in parted._live]
    assert held[:2] == [tensor.nbytes for tensor in parts[0].parameters]
    assert not any(held[2:])


def test_steps_of_a_part_remain_when_the_whole_is_asked_for() -> None:
    workload = mnist_mlp()
    object.__setattr__(workload, "optimizer", adamw(0.01))
    whole, parted = pair_of(workload)
    for replica in (whole, parted):
        part = replica.part([0])
        part.apply([torch.ones_like(part.parameters[0])])
        replica.apply([torch.ones_like(tensor) for tensor in replica.parameters])
    states = whole.state(), parted.state()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_a_model_whose_layers_read_each_others_weights_is_held_whole() -> None:
    class Reader(nn.Module):
        def __init__(self, other: nn.Linear) -> None:
            super().__init__()
            self.read = lambda: other.weight

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs @ self.read()

    def model() -> nn.Module:
        first = nn.Linear(4, 4)
        return nn.Sequential(first, Reader(first))

    data = torch.randn(16, 4), torch.randn(16, 4)
    workload = Workload(model, nn.functional.mse_loss, data, adamw(0.01), 2)
    whole, parted = pair_of(workload)
    assert not parted.is_in_parts
    assert all(map(torch.equal, parted.parameters, whole.parameters))


def test_the_hash_does_not_depend_on_the_order_of_arrival() -> None:
    names, weights = ["a", "b", "c"], [torch.ones(2), torch.zeros(3), torch.arange(4)]
    digest = Digest(names)
    for place in (2, 0, 1):
        assert not digest.is_complete
        digest.add({place: weights[place]})
    assert digest.is_complete
    assert digest.hexdigest() == weights_sha256(names, weights)
