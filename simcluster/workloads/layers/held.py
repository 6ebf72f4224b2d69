"""What each layer holds from its forward to its backward pass, counted on real or fake tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from simcluster.workloads.data.samples import Batch
from simcluster.workloads.steps import Loss

Held: TypeAlias = dict[int, int]
"""Bytes by storage; a storage that two layers hold has one key."""


def count_held(modules: Sequence[nn.Module], loss: Loss, batch: Batch) -> list[Held]:
    """Return, for each of *modules*, applied in order, what is held from its forward to its backward pass.

    Those are its inputs, its outputs and what autograd saves, without the batch and the weights.
    """
    parameters = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    apart = storages([*parameters, batch.inputs, batch.targets]).keys()
    kept: list[dict[int, torch.UntypedStorage]] = []
    value = batch.inputs
    for number, module in enumerate(modules):
        saved = storages([])

        def keep(tensor: Tensor, saved: dict[int, torch.UntypedStorage] = saved) -> Tensor:
            saved.update(storages([tensor]))
            return tensor

        leaf = value.detach()
        if number and leaf.is_floating_point():
            leaf.requires_grad_()
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = module(leaf)
            if number == len(modules) - 1:
                outputs = loss(outputs, batch.targets)
        kept.append(saved | storages([leaf, outputs]))
        value = outputs
    return [{key: held.nbytes() for key, held in each.items() if key not in apart} for each in kept]


def joint_bytes(held: Iterable[Held]) -> int:
    """Return the bytes of all of *held* together, each storage counted once."""
    together: Held = {}
    for each in held:
        together |= each
    return sum(together.values())


def storages(tensors: Iterable[Tensor]) -> dict[int, torch.UntypedStorage]:
    """Return the storages of *tensors*; views share one. They are kept alive, so that no address is reused."""
    return {storage._cdata: storage for storage in [tensor.untyped_storage() for tensor in tensors]}
