"""Costs of a model that no rank holds whole. They are counted without values, and checked with one
layer at a time in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simcluster.errors import UsageError
from simcluster.process.generators import copied
from simcluster.transport import Cost
from simcluster.workloads.costs.counter import Counter
from simcluster.workloads.costs.memory import MemoryBytes
from simcluster.workloads.costs.sketch import Sketch
from simcluster.workloads.data.samples import Batch, Samples
from simcluster.workloads.global_rng import borrowed
from simcluster.workloads.initial.deferred import DeferredModel, FillingWatch, RefusingWatch
from simcluster.workloads.initial.tape import Unrecordable
from simcluster.workloads.layers.layer_costs import LayerCost, wrong_layers
from simcluster.workloads.layers.layers import modules_in_order
from simcluster.workloads.layers.part import PartCost
from simcluster.workloads.layers.tensor_shard import ShardedLayerCost
from simcluster.workloads.precision import forward_in


@dataclass(eq=False)
class CounterInParts(Counter):
    """A Counter that never makes a whole model, for models that pass `fits`.

    *sketch* returns the workload's sketch.
    """

    sketch: Callable[[], Sketch]

    def fits(self, batch: Batch) -> bool:
        """Return whether costs can be counted without values and the model can run layer by layer."""
        if self.counted.in_parts is None:
            try:
                self.sketch().gradient(batch)
                self._pass_through(batch)
                self.counted.in_parts = True
            except Exception:  # a faulty model fails again when it is made whole, where the error is reported
                self.counted.in_parts = False
        return self.counted.in_parts

    def gradient(self, batch: Batch) -> Cost:
        return self.sketch().gradient(batch)

    def apply(self, parameters: Sequence[Tensor]) -> Cost:
        return self.sketch().apply(parameters)

    def part(self, parameters: Sequence[Tensor]) -> PartCost:
        return self.sketch().part(parameters)

    def layers(self, batch: Batch) -> list[LayerCost]:
        if self.counted.wrong_layers is not None:
            raise UsageError(self.counted.wrong_layers)
        return self.sketch().layers(batch)

    def shares(self, batch: Batch, size: int) -> list[ShardedLayerCost]:
        return self.sketch().shares(batch, size)

    def rows_cost(self, number: int, name: str, rows: int, width: int, ranks: int = 1) -> LayerCost:
        return self.sketch().rows_cost(number, name, rows, width, ranks)

    def split_dims(self, number: int, name: str, ranks: int) -> dict[str, int]:
        return self.sketch().split_dims(number, name, ranks)

    def running(self, batch: Batch) -> list[str]:
        return self.sketch().running(batch)

    def memory(self, batch: Batch, data: Iterable[Samples]) -> MemoryBytes:
        return self.sketch().memory(batch, data)

    def _pass_through(self, batch: Batch) -> None:
        """Compute the loss by layers and by the whole model, and note whether the two losses
        differ.

        Raise Unrecordable if the model cannot be computed with few weights in memory at a time.
        """
        # Initial values need not be exact: this only checks that the layers and the model agree.
        deferred = DeferredModel(self.make_model, alike=True)
        model = deferred.model.train()
        modules = modules_in_order(model)
        with torch.no_grad():
            with borrowed(0, others=True), RefusingWatch():  # type: ignore[no-untyped-call]
                value = batch.inputs
                with forward_in(self.precision, value.device):
                    for module in modules:
                        value = _through(module, value, deferred)
                loss = self._loss_of(value, batch)
            sizes = [sum(parameter.nbytes for parameter in module.parameters()) for module in modules]
            with borrowed(0, others=True), FillingWatch(deferred, max(sizes)):
                before = copied()
                with forward_in(self.precision, value.device):
                    outputs = model(batch.inputs)
                whole = self._loss_of(outputs, batch)
                self.note_draws(before)
            self.counted.wrong_layers = wrong_layers(model, loss, whole)

    def _loss_of(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Return the loss of *outputs* with gradients enabled, as in training. A loss may behave
        differently when they are disabled.
        """
        with torch.enable_grad():
            return self.loss(outputs.requires_grad_(outputs.is_floating_point()), batch.targets).detach()


def _through(module: nn.Module, value: Tensor, deferred: DeferredModel) -> Tensor:
    """Return the output of *module* for *value*. The module's parameters are in memory only during
    this call.
    """
    parameters = list(module.parameters())
    deferred.fill(parameters)
    output: Tensor = module(value)
    if output.untyped_storage()._cdata in {parameter.untyped_storage()._cdata for parameter in parameters}:
        raise Unrecordable("a layer that returns a parameter")
    deferred.drop(parameters)
    return output
