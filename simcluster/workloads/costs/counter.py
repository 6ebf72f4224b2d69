"""The costs of a replica's work, each counted once for all replicas of a workload, on a separate model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import nn

from simcluster.transport import Cost
from simcluster.workloads.costs.costs import elementwise_cost, kind_of, matrix_cost
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.layers.layer_costs import LayerCost, count_layers
from simcluster.workloads.layers.layers import modules_in_order
from simcluster.workloads.layers.tensor_shard import PieceCost, share_of
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.samples import Batch
from simcluster.workloads.steps import Loss, differentiate, take_step, trainable_of


@dataclass
class Counted:
    """Facts found once for all replicas of a workload: costs, and whether the model draws random numbers."""

    costs: dict[Hashable, Cost] = field(default_factory=dict)
    layers: dict[Hashable, list[LayerCost]] = field(default_factory=dict)
    shares: dict[Hashable, list[PieceCost]] = field(default_factory=dict)
    draws: bool | None = None


@dataclass(frozen=True)
class Counter:
    """*name* is the workload's, for the kinds of its costs."""

    counted: Counted
    make_model: Callable[[], nn.Module]
    loss: Loss
    make_optimizer: MakeOptimizer
    clip_norm: float | None
    name: str

    def gradient(self, batch: Batch) -> Cost:
        """Return the cost of the loss and gradient of *batch*, and note whether the model draws random numbers."""
        key, costs = ("gradient", *_shapes(batch)), self.counted.costs
        if key not in costs:
            model = self.make_model().train()
            trainable = [p for p in model.parameters() if p.requires_grad]
            with borrowed(0) as generator:
                before = generator.get_state()
                work = partial(differentiate, model, self.loss, trainable, batch)
                costs[key] = matrix_cost(work, kind_of(self.name, "gradient"))
                if self.counted.draws is None:
                    self.counted.draws = not torch.equal(before, generator.get_state())
        return costs[key]

    def apply(self, trainable: Sequence[nn.Parameter]) -> Cost:
        """Return the cost of one optimizer step on copies of *trainable*."""
        costs = self.counted.costs
        if "apply" not in costs:
            copies = [nn.Parameter(parameter.detach().clone()) for parameter in trainable]
            gradients = [torch.ones_like(parameter) for parameter in copies]
            step = partial(take_step, self.make_optimizer(copies), copies, gradients, self.clip_norm)
            step()  # it also sets up the optimizer's state; later steps cost the same
            costs["apply"] = elementwise_cost(step, kind_of(self.name, "apply"))
        return costs["apply"]

    def layers(self, batch: Batch) -> list[LayerCost]:
        """Return the cost of each layer for such a (micro-)batch."""
        key, counted = _shapes(batch), self.counted.layers
        if key not in counted:
            self.gradient(batch)  # also finds out whether the model draws numbers
            with borrowed(0):
                counted[key] = count_layers(self.make_model().train(), self.loss, batch, self.name)
        return counted[key]

    def shares(self, batch: Batch, size: int) -> list[PieceCost]:
        """Return the costs of the layers of one of *size* tensor-parallel shards."""
        key, counted = (size, *_shapes(batch)), self.counted.shares
        if key not in counted:
            self.gradient(batch)  # also finds out whether the model draws numbers
            with borrowed(0):
                model = self.make_model().train()
                share = share_of(modules_in_order(model), [p for _, p in trainable_of(model)], 0, size)
                counted[key] = share.count(self.loss, batch, self.name)
        return counted[key]


def _shapes(batch: Batch) -> tuple[Hashable, ...]:
    return batch.inputs.shape, batch.inputs.dtype, batch.targets.shape, batch.targets.dtype
