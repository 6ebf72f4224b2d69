"""Sizes and costs of a workload's model, found without computing it: for `numerics: none`.

All replicas of a workload share one sketch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from simcluster.errors import Problem, UsageError
from simcluster.transport import Cost
from simcluster.workloads.costs.costs import elementwise_cost, kind_of, matrix_cost
from simcluster.workloads.costs.memory import Memory, count_memory
from simcluster.workloads.layers.layer_costs import LayerCost, count_layers
from simcluster.workloads.layers.layers import modules_in_order
from simcluster.workloads.layers.part import Part, count_part
from simcluster.workloads.layers.pieces import Pieces, count_pieces
from simcluster.workloads.layers.tensor_shard import PieceCost, Share, share_of
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.samples import Batch, Samples
from simcluster.workloads.steps import Loss, differentiate, take_step, trainable_of

T = TypeVar("T")


class Sketch:
    """Shapes and costs of a model, loss and optimizer.

    *names* and *parameters* are those of `Replica`, on torch's meta device; *model* and *trainable* are fake. Raises
    UsageError, naming the work, if its control flow depends on values.
    """

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        loss: Loss,
        make_optimizer: MakeOptimizer,
        clip_norm: float | None,
        name: str = "",
    ) -> None:
        self._name = name
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.loss, self._make_optimizer, self._clip_norm = loss, make_optimizer, clip_norm
        self._costs: dict[Hashable, Cost] = {}
        self._layers: dict[Hashable, list[LayerCost]] = {}
        self._parts: dict[Hashable, tuple[Cost, Cost]] = {}
        self._pieces: dict[Hashable, tuple[Cost, Cost, int]] = {}
        self._shares: dict[int, tuple[Share, tuple[Cost, Cost]]] = {}
        self._share_costs: dict[Hashable, list[PieceCost]] = {}
        self._outputs: dict[Hashable, Tensor] = {}
        self.model = self._without_values("the model", lambda: make_model().train())
        named = trainable_of(self.model)
        self.names = [name for name, _ in named]
        self.trainable = [parameter for _, parameter in named]
        self.parameters = [_meta(parameter) for parameter in self.trainable]

    def gradient_cost(self, batch: Batch) -> Cost:
        """Return `Replica.gradient_cost` of such a batch; counted once per shape."""
        key = _key(batch)
        if key not in self._costs:
            self._costs[key] = self._without_values("the model and its loss", lambda: self._count(batch))
        return self._costs[key]

    def _count(self, batch: Batch) -> Cost:
        fake = Batch(_fake(batch.inputs), _fake(batch.targets), batch.step)
        kind = kind_of(self._name, "gradient")
        return matrix_cost(lambda: differentiate(self.model, self.loss, self.trainable, fake), kind)

    def layer_costs(self, batch: Batch) -> list[LayerCost]:
        """Return `Replica.layer_costs` of such a batch; counted once per shape."""
        key = _key(batch)
        if key not in self._layers:
            fake = self._without_values("the batch", lambda: Batch(_fake(batch.inputs), _fake(batch.targets)))
            work = partial(count_layers, self.model, self.loss, fake, self._name)
            self._layers[key] = self._without_values("the model's layers", work)
        return self._layers[key]

    def output_of(self, modules: Sequence[nn.Module], which: Hashable, inputs: Tensor) -> Tensor:
        """Return the output of *modules*, identified by *which*, for *inputs*, without values."""
        key = (which, inputs.shape, inputs.dtype)
        if key not in self._outputs:

            def forward() -> Tensor:
                value = _fake(inputs)
                with torch.no_grad():
                    for module in modules:
                        value = module(value)
                return value

            self._outputs[key] = _meta(self._without_values("a layer", forward))
        return self._outputs[key]

    def apply_cost(self) -> Cost:
        """Return `Replica.apply_cost`."""
        return self._step_counted[0]

    def part(self, places: Sequence[int]) -> Part:
        """Return `Replica.part` with steps that do nothing."""
        key = tuple(places)
        if key not in self._parts:
            kind = kind_of(self._name, "apply")
            fake = self._without_values("the optimizer", lambda: [_fake(self.parameters[place]) for place in places])
            count = partial(count_part, fake, self._make_optimizer, self._clip_norm, kind)
            self._parts[key] = self._without_values("the optimizer", count)
        return self.part_of(places, [self.parameters[place] for place in places], self._parts[key])

    def part_of(self, places: Sequence[int], parameters: Sequence[Tensor], costs: tuple[Cost, Cost]) -> Part:
        """Return a Part with the shapes of *parameters* and steps that do nothing."""
        metas = [_meta(parameter) for parameter in parameters]
        return Part(places, metas, self._clip_norm, lambda _: None, costs, device="meta")

    def pieces(self, vectors: Sequence[Tensor]) -> Pieces:
        """Return `Replica.pieces` with steps that do nothing."""
        key = tuple((vector.shape, vector.dtype) for vector in vectors)
        if key not in self._pieces:
            kind = kind_of(self._name, "apply")
            fake = self._without_values("the optimizer", lambda: [_fake(vector) for vector in vectors])
            count = partial(count_pieces, fake, self._make_optimizer, self._clip_norm, kind)
            self._pieces[key] = self._without_values("the optimizer", count)
        return Pieces(vectors, self._clip_norm, lambda _: None, self._pieces[key], device="meta")

    def memory(self, batch: Batch, data: Iterable[Samples]) -> Memory:
        """Return `count_memory` of the model, such a batch and *data*."""

        def count() -> Memory:
            fake = Batch(_fake(batch.inputs), _fake(batch.targets), batch.step)
            return count_memory(self.model, self.loss, self._make_optimizer, fake, data)

        return self._without_values("the model and its loss", count)

    def state(self, *, stepped: bool) -> dict[str, Tensor]:
        """Return the entries of `Replica.state`, before or after the first step."""
        state = {f"model.{name}": _meta(value) for name, value in self.model.state_dict().items()}
        return state | self._step_counted[1] if stepped else state

    def share(self, size: int) -> tuple[Share, tuple[Cost, Cost]]:
        """Return (the share of each of *size* tensor-parallel ranks, the costs of its `Part`)."""
        if size not in self._shares:
            kind = kind_of(self._name, "apply")

            def share() -> tuple[Share, tuple[Cost, Cost]]:
                share = share_of(modules_in_order(self.model), self.trainable, 0, size)
                return share, count_part(share.parameters, self._make_optimizer, self._clip_norm, kind)

            self._shares[size] = self._without_values("the model's layers", share)
        return self._shares[size]

    def share_costs(self, size: int, batch: Batch) -> list[PieceCost]:
        """Return the costs of the layers of `share` for such a batch."""
        key = (size, _key(batch))
        if key not in self._share_costs:
            fake = self._without_values("the batch", lambda: Batch(_fake(batch.inputs), _fake(batch.targets)))
            work = partial(self.share(size)[0].count, self.loss, fake, self._name)
            self._share_costs[key] = self._without_values("the model's layers", work)
        return self._share_costs[key]

    @cached_property
    def _step_counted(self) -> tuple[Cost, dict[str, Tensor]]:
        """(cost of a step, the optimizer's state after it)."""
        return self._without_values("the optimizer", self._count_step)

    def _count_step(self) -> tuple[Cost, dict[str, Tensor]]:
        copies = [nn.Parameter(_fake(parameter)) for parameter in self.parameters]
        optimizer = self._make_optimizer(copies)
        gradients = [torch.ones_like(parameter) for parameter in copies]
        take_step(optimizer, copies, gradients, self._clip_norm)
        kind = kind_of(self._name, "apply")
        cost = elementwise_cost(lambda: take_step(optimizer, copies, gradients, self._clip_norm), kind)
        state = {
            f"optimizer.{name}.{key}": _meta(torch.as_tensor(value))
            for name, parameter in zip(self.names, copies, strict=True)
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, (Tensor, int, float))
        }
        return cost, state

    def _without_values(self, what: str, step: Callable[[], T]) -> T:
        try:
            with self._mode:
                return step()
        except UsageError:
            raise
        except Exception as error:
            found = f"none, but {what} cannot do without values ({type(error).__name__}: {error})"
            raise UsageError(Problem("numerics", found, "real, or work that does not depend on values")) from error


def _key(batch: Batch) -> Hashable:
    return batch.inputs.shape, batch.inputs.dtype, batch.targets.shape, batch.targets.dtype


def _meta(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _fake(tensor: Tensor) -> Tensor:
    """Return a fake CPU tensor. Call it in fake mode."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
