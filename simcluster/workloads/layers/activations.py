"""The bytes that each layer holds from its forward to its backward pass, counted on real or fake
tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from simcluster.workloads.data.samples import Batch
from simcluster.workloads.precision import Precision, forward_in
from simcluster.workloads.steps import Loss

Held = dict[int, int]
"""Key of a storage -> its size in bytes. A storage that two layers hold has the same key in
both.
"""


def count_held(modules: Sequence[nn.Module], loss: Loss, batch: Batch, precision: Precision = "f32") -> list[Held]:
    """Apply *modules* in order; return the storages that each one holds from its forward to its
    backward pass.

    A module holds its inputs, its outputs and what autograd saves. The batch and the weights are
    not counted.
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
            with forward_in(precision, leaf.device):
                outputs = module(leaf)
            if number == len(modules) - 1:
                outputs = loss(outputs, batch.targets)
        kept.append(saved | storages([leaf, outputs]))
        value = outputs
    return [{key: held.nbytes() for key, held in each.items() if key not in apart} for each in kept]


def joint_bytes(held: Iterable[Held]) -> int:
    """Return the total bytes of all of *held*, with each storage counted once."""
    together: Held = {}
    for each in held:
        together |= each
    return sum(together.values())


def storages(tensors: Iterable[Tensor]) -> dict[int, torch.UntypedStorage]:
    """Return key -> storage for *tensors*; views share a storage. The result keeps the storages
    alive, so that no key is reused.
    """
    return {storage._cdata: storage for storage in [tensor.untyped_storage() for tensor in tensors]}
