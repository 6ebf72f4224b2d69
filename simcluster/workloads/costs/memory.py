"""The memory that training a model takes, counted on real or fake tensors as they are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from simcluster.workloads.optimizers import MakeOptimizer
from simcluster.workloads.samples import Batch, Samples
from simcluster.workloads.saved import state_tensors
from simcluster.workloads.steps import Loss, rehearsed, trainable_of


@dataclass(frozen=True)
class Memory:
    """Bytes that one node holds at one moment, each storage counted once.

    - *weights*: parameters and buffers of the model.
    - *gradients*: one per trainable parameter.
    - *optimizer*: its state after the first step.
    - *activations*: what the forward pass saves for the backward pass, without the batch and the weights.
    - *batch*: inputs and targets.
    - *data*: all samples, since every node has them in memory; a mapped file's count in full, as if all were read.
    - *messages*: what the algorithm sends, has received, or keeps besides the model.
    - *evaluation*: copies of the weights that wait for their evaluation, and the model that evaluates them.

    Not counted: temporaries of operators, the framework, the operating system and the program itself.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    batch: int
    data: int
    messages: int = 0
    evaluation: int = 0

    @property
    def total(self) -> int:
        return sum(asdict(self).values())


def count_memory(
    model: nn.Module, loss: Loss, make_optimizer: MakeOptimizer, batch: Batch, data: Iterable[Samples]
) -> Memory:
    """Return the memory that training *model* takes. Computes the loss of *batch* once; changes only buffers."""
    trainable = [parameter for _, parameter in trainable_of(model)]
    weights = _storages([*model.parameters(), *model.buffers()])
    own, saved = _storages([batch.inputs, batch.targets]), _storages([])

    def keep(tensor: Tensor) -> Tensor:
        saved.update(_storages([tensor]))
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss(model(batch.inputs), batch.targets)
    del value
    _, optimizer, _ = rehearsed(trainable, make_optimizer, None)
    return Memory(
        weights=_bytes(weights),
        gradients=_bytes(_storages(trainable)),
        optimizer=_bytes(_storages(state_tensors(optimizer))),
        activations=_bytes({key: saved[key] for key in saved.keys() - weights.keys() - own.keys()}),
        batch=_bytes(own),
        data=_bytes(_storages([part for samples in data for part in (samples.inputs, samples.targets)])),
    )


Held: TypeAlias = dict[int, int]
"""Bytes by storage; a storage that two layers hold has one key."""


def count_held(modules: Sequence[nn.Module], loss: Loss, batch: Batch) -> list[Held]:
    """Return, for each of *modules*, applied in order, what is held from its forward to its backward pass.

    Those are its inputs, its outputs and what autograd saves, without the batch and the weights.
    """
    parameters = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    apart = _storages([*parameters, batch.inputs, batch.targets]).keys()
    kept: list[dict[int, torch.UntypedStorage]] = []
    value = batch.inputs
    for number, module in enumerate(modules):
        saved = _storages([])

        def keep(tensor: Tensor, saved: dict[int, torch.UntypedStorage] = saved) -> Tensor:
            saved.update(_storages([tensor]))
            return tensor

        leaf = value.detach()
        if number and leaf.is_floating_point():
            leaf.requires_grad_()
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = module(leaf)
            if number == len(modules) - 1:
                outputs = loss(outputs, batch.targets)
        kept.append(saved | _storages([leaf, outputs]))
        value = outputs
    return [{key: held.nbytes() for key, held in each.items() if key not in apart} for each in kept]


def joint_bytes(held: Iterable[Held]) -> int:
    """Return the bytes of all of *held* together, each storage counted once."""
    together: Held = {}
    for each in held:
        together |= each
    return sum(together.values())


def _storages(tensors: Iterable[Tensor]) -> dict[int, torch.UntypedStorage]:
    """Return the storages of *tensors*; views share one. They are kept alive, so that no address is reused."""
    return {storage._cdata: storage for storage in [tensor.untyped_storage() for tensor in tensors]}


def _bytes(storages: dict[int, torch.UntypedStorage]) -> int:
    return sum(storage.nbytes() for storage in storages.values())
