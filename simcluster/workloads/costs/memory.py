"""The memory that training a model takes, counted on real or fake tensors as they are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.samples import Batch, Samples
from simcluster.workloads.saved import state_tensors
from simcluster.workloads.steps import Loss, rehearsed, trainable_of


@dataclass(frozen=True)
class Memory:
    """Bytes that one node holds during a training step, each storage counted once.

    - *weights*: parameters and buffers of the model.
    - *gradients*: one per trainable parameter.
    - *optimizer*: its state after the first step.
    - *activations*: what the forward pass saves for the backward pass, without the batch and the weights.
    - *batch*: inputs and targets.
    - *data*: all samples, since every node has them in memory.

    Not counted: temporaries of operators, the framework, the operating system and the program itself.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    batch: int
    data: int

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


def count_memory(
    model: nn.Module, loss: Loss, make_optimizer: MakeOptimizer, batch: Batch, data: Iterable[Samples]
) -> Memory:
    """Return the memory that training *model* takes. Computes the loss of *batch* once; changes only buffers."""
    trainable = [parameter for _, parameter in trainable_of(model)]
    weights = _Storages([*model.parameters(), *model.buffers()])
    own, saved = _Storages([batch.inputs, batch.targets]), _Storages([])

    def keep(tensor: Tensor) -> Tensor:
        saved.add(tensor)
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss(model(batch.inputs), batch.targets)
    del value
    saved.forget(weights, own)
    _, optimizer, _ = rehearsed(trainable, make_optimizer, None)
    return Memory(
        weights=weights.size_bytes,
        gradients=_Storages(trainable).size_bytes,
        optimizer=_Storages(state_tensors(optimizer)).size_bytes,
        activations=saved.size_bytes,
        batch=own.size_bytes,
        data=_Storages([part for samples in data for part in (samples.inputs, samples.targets)]).size_bytes,
    )


class _Storages:
    """The storages of some tensors; views share one. They are kept alive, so that no address is reused."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._known: dict[int, torch.UntypedStorage] = {}
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        self._known.setdefault(storage._cdata, storage)

    def forget(self, *others: _Storages) -> None:
        for key in [key for other in others for key in other._known]:
            self._known.pop(key, None)

    @property
    def size_bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._known.values())
