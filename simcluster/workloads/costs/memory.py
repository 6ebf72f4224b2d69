"""The memory that training a model takes, counted on the real or fake tensors of a training
step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from simcluster.workloads.data.samples import Batch, Samples
from simcluster.workloads.layers.activations import storages
from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.precision import Precision, forward_in
from simcluster.workloads.saved import state_tensors
from simcluster.workloads.steps import Loss, outputs_of, rehearsed, trainable_of


@dataclass(frozen=True)
class MemoryBytes:
    """The bytes that one node holds at one moment. Each storage is counted once.

    - *weights*: the parameters and buffers of the model.
    - *gradients*: one gradient per trainable parameter.
    - *optimizer*: the optimizer's state after the first step.
    - *activations*: the tensors that the forward pass saves for the backward pass, without the batch
      and the weights.
    - *batch*: the inputs and targets of a batch.
    - *data*: all samples, since every node has them in memory; a mapped file counts in full.
    - *messages*: the tensors that the algorithm sends, has received, or keeps besides the model.
    - *scratch*: the temporaries of an optimizer step, if the algorithm states its phases.
    - *captures*: copies of the last steps, from which a group continues when it loses a rank.
    - *evaluation*: copies of the weights that are being evaluated or wait for evaluation.

    Other temporaries of operators, the framework, the operating system and the program itself are
    not counted.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    batch: int
    data: int
    messages: int = 0
    scratch: int = 0
    captures: int = 0
    evaluation: int = 0

    @cached_property
    def total(self) -> int:
        return sum(getattr(self, part.name) for part in fields(self))


def count_memory(
    model: nn.Module,
    loss: Loss,
    make_optimizer: MakeOptimizer,
    batch: Batch,
    data: Iterable[Samples],
    precision: Precision = "f32",
) -> MemoryBytes:
    """Return the memory that training *model* takes.

    This computes the loss of *batch* once, which may change the model's buffers.
    """
    trainable = [parameter for _, parameter in trainable_of(model)]
    activations = count_activations(model, loss, batch, precision)
    _, optimizer, _ = rehearsed(trainable, make_optimizer, None)
    return MemoryBytes(
        weights=_bytes(_weights(model)),
        gradients=_bytes(storages(trainable)),
        optimizer=_bytes(storages(state_tensors(optimizer))),
        activations=activations,
        batch=_bytes(storages(batch.tensors)),
        data=_bytes(storages([part for samples in data for part in samples.tensors])),
    )


def count_activations(model: nn.Module, loss: Loss, batch: Batch, precision: Precision = "f32") -> int:
    """Return the bytes that the forward pass saves for the backward pass, without *batch* and the weights."""
    saved = storages([])

    def keep(tensor: Tensor) -> Tensor:
        saved.update(storages([tensor]))
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        with forward_in(precision, next(model.parameters()).device):
            outputs = outputs_of(model, batch.inputs)
        value = loss(outputs, batch.targets)
        del outputs
    del value
    apart = _weights(model).keys() | storages(batch.tensors).keys()
    return _bytes({key: saved[key] for key in saved.keys() - apart})


def _weights(model: nn.Module) -> dict[int, torch.UntypedStorage]:
    return storages([*model.parameters(), *model.buffers()])


def _bytes(storages: dict[int, torch.UntypedStorage]) -> int:
    return sum(storage.nbytes() for storage in storages.values())
