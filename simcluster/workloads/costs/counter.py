"""The costs of training a model, each counted once for all replicas of a workload, on a separate model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from simcluster.compute import to_host
from simcluster.errors import Problem
from simcluster.process.generators import copied
from simcluster.transport import Cost
from simcluster.workloads.costs.memory import MemoryBytes, count_memory
from simcluster.workloads.data.samples import Batch, Samples
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.layers.held import Held, count_held
from simcluster.workloads.layers.layer_costs import LayerCost, count_layers
from simcluster.workloads.layers.layers import check_layered, modules_in_order
from simcluster.workloads.layers.part import PartCost, count_part
from simcluster.workloads.layers.tensor_shard import ShardedLayerCost, ShardModules, share_of
from simcluster.workloads.operator_costs import elementwise_cost, kind_of, matrix_cost
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.running import running_buffers
from simcluster.workloads.steps import Loss, differentiate, outputs_of, rehearsed, trainable_of

T = TypeVar("T")


@dataclass
class WorkloadFacts:
    """Facts found once for all replicas of a workload: costs, whether the model *draws* random numbers, whether it
    does from Python's or numpy's generators, whether it can be made and used part by part, and what is wrong with its
    layers if it can, and whether its loss is a sum over samples.
    """

    found: dict[Hashable, Any] = field(default_factory=dict)
    draws: bool | None = None
    others: bool | None = None
    in_parts: bool | None = None
    wrong_layers: Problem | None = None
    loss_sums: bool = False


@dataclass(eq=False)
class Counter:
    """The parts of a workload that make and train a model, and the costs of their work.

    *name* is the workload's, for the kinds of costs; it is empty if no profile can refer to it.
    """

    make_model: Callable[[], nn.Module]
    loss: Loss
    make_optimizer: MakeOptimizer
    clip_norm: float | None
    name: str
    counted: WorkloadFacts

    def gradient(self, batch: Batch) -> Cost:
        """Return the cost of the loss and gradient of *batch*, and note whether the model draws random numbers."""

        def count() -> Cost:
            model, like = self.a_model(), self.like_batch(batch)
            work = partial(differentiate, model, self.loss, [p for _, p in trainable_of(model)], like)
            before = copied() if self.counted.draws is None else None
            cost = matrix_cost(work, kind_of(self.name, "gradient"))
            if before is not None:
                self.note_draws(before)
            return cost

        return self.once(("gradient", *_shapes(batch)), "the model and its loss", count)

    def note_draws(self, before: tuple[object, ...]) -> None:
        """Note whether the model has drawn random numbers since `copied` returned *before*."""
        *others, of_torch = copied()
        self.counted.others = others != [*before[:-1]]
        self.counted.draws = self.counted.others or of_torch != before[-1]

    def apply(self, parameters: Sequence[Tensor]) -> Cost:
        """Return the cost of one optimizer step on copies of *parameters*, which are all of the model's."""

        def count() -> Cost:
            *_, step = rehearsed([self.like(p) for p in parameters], self.make_optimizer, self.clip_norm)
            return elementwise_cost(step, kind_of(self.name, "apply"))

        return self.once("apply", "the optimizer", count)

    def part(self, parameters: Sequence[Tensor]) -> PartCost:
        """Return the costs of a ParameterPart of *parameters*: see `count_part`."""

        def count() -> PartCost:
            kind = kind_of(self.name, "apply")
            return count_part([self.like(p) for p in parameters], self.make_optimizer, self.clip_norm, kind)

        return self.once(("part", *((p.shape, p.dtype) for p in parameters)), "the optimizer", count)

    def layers(self, batch: Batch) -> list[LayerCost]:
        """Return the cost of each layer for such a (micro-)batch."""
        check_layered(self.loss, batch)

        def count() -> list[LayerCost]:
            return count_layers(self.a_model(), self.loss, self.like_batch(batch), self.name)

        if self.counted.draws is None:
            self.gradient(batch)
        return self.once(("layers", *_shapes(batch)), "the model's layers", count)

    def shares(self, batch: Batch, size: int) -> list[ShardedLayerCost]:
        """Return the costs of the layers of one of *size* tensor-parallel shards."""
        check_layered(self.loss, batch)

        def count() -> list[ShardedLayerCost]:
            return self.share(size).count(self.loss, self.like_batch(batch), self.name)

        if self.counted.draws is None:
            self.gradient(batch)
        return self.once(("shares", size, *_shapes(batch)), "the model's layers", count)

    def held(self, batch: Batch) -> list[Held]:
        """Return `count_held` of the layers, for such a (micro-)batch."""
        check_layered(self.loss, batch)

        def count() -> list[Held]:
            return count_held(modules_in_order(self.a_model()), self.loss, self.like_batch(batch))

        return self.once(("held", *_shapes(batch)), "the model's layers", count)

    def held_by_share(self, batch: Batch, size: int) -> list[Held]:
        """Return `count_held` of the modules of one of *size* tensor-parallel shards."""

        def count() -> list[Held]:
            return count_held(self.share(size).modules, self.loss, self.like_batch(batch))

        return self.once(("held", size, *_shapes(batch)), "the model's layers", count)

    def share(self, size: int) -> ShardModules:
        """Return the share of the first of *size* tensor-parallel ranks; the others' have the same shapes."""
        model = self.a_model()
        return share_of(modules_in_order(model), [p for _, p in trainable_of(model)], 0, size)

    def memory(self, batch: Batch, data: Iterable[Samples]) -> MemoryBytes:
        """Return `count_memory` of the model, such a batch and *data*, which are always the same."""

        def count() -> MemoryBytes:
            like = self.like_batch(batch)
            return count_memory(self.a_model(), self.loss, self.make_optimizer, like, data)

        return self.once(("memory", *_shapes(batch)), "the model and its loss", count)

    def running(self, batch: Batch) -> list[str]:
        """Return the names of the model's running statistics."""

        def find() -> list[str]:
            return running_buffers(self.a_model(), self.like_batch(batch))

        return self.once("running", "the model", find)

    def once(self, key: Hashable, what: str, work: Callable[[], T]) -> T:
        """Return the result of *work*, which is called *what* and run once for each *key*."""
        if key not in self.counted.found:
            self.counted.found[key] = self.run(what, work)
        found: T = self.counted.found[key]
        return found

    def run(self, what: str, work: Callable[[], T]) -> T:
        """Return the result of *work*; *what* is its name in errors."""
        with borrowed(0, others=True):
            return work()

    def draws_when_judged(self, samples: Samples) -> bool:
        """Return whether the evaluation of *samples* draws random numbers, as that of the first one tells."""

        def judge() -> bool:
            before = copied()
            with torch.no_grad():
                self.loss(outputs_of(self.a_model().eval(), samples.first(1).inputs), samples.first(1).targets)
            return copied() != before

        return self.counted.draws is not False and self.once("judge", "the model on held-out samples", judge)

    def a_model(self) -> nn.Module:
        """Return a model that no replica has."""
        return self.make_model().train()

    def like(self, tensor: Tensor) -> Tensor:
        """Return a tensor like *tensor* for work that is counted, which is done on the host."""
        return to_host(tensor)

    def like_batch(self, batch: Batch) -> Batch:
        return Batch(*batch.each(self.like), batch.step)


def _shapes(batch: Batch) -> tuple[Hashable, ...]:
    return tuple((tensor.shape, tensor.dtype) for tensor in batch.tensors)
