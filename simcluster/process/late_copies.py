"""Copies of tensors that share memory until one of both is written to, where torch can do that.

torch marks such memory, and every operator that writes copies it first. Only writes that torch does not see, such as
those through an array of numpy made before, would reach both: so the caller must know that there are none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

LEAST_BYTES = 4096
"""Less is copied at once in the same time."""

_NEEDS = ((Tensor, "_lazy_clone"), (torch._C, "_is_cow_tensor"), (torch._C, "_storage_Use_Count"))
AVAILABLE = all(hasattr(where, name) for where, name in _NEEDS)
"""Whether this build of torch has what it takes: these functions are not part of its documented interface."""


def late_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy of *tensor*, which is on the CPU and has no gradient.

    It is copied now if it is small, or only a part of its memory.
    """
    size_bytes = tensor.nbytes
    if (
        AVAILABLE
        and size_bytes >= LEAST_BYTES
        and tensor.untyped_storage().nbytes() == size_bytes
        and tensor.is_contiguous()
    ):
        with suppress(RuntimeError):  # memory that torch did not allocate
            return tensor._lazy_clone()
    return tensor.clone(memory_format=torch.contiguous_format)


def take_over(parameter: nn.Parameter, live: Sequence[Tensor], place: int, given: Tensor) -> bool:
    """Let *parameter*, and *live[place]*, its values, share the memory of *given*, a late copy; return whether they do.

    They do not if anything else may look at their memory, since it would no longer see the weights.
    """
    mine = live[place]
    if not (AVAILABLE and torch._C._is_cow_tensor(given)):  # type: ignore[attr-defined]
        return False
    if given.dtype != mine.dtype or given.device != mine.device or not given.is_contiguous():
        return False
    if _references(live, place) > _REFERENCES or _users(mine) > _USERS:
        return False
    parameter.data = mine.data = given._lazy_clone()
    torch.autograd.graph.increment_version(parameter)
    return True


def _references(live: Sequence[Tensor], place: int) -> int:
    """Return the references to *live[place]*: an array of numpy on its memory is one."""
    return sys.getrefcount(live[place])


def _users(tensor: Tensor) -> int:
    """Return the number of tensors, views included, with the memory of *tensor*."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _alone() -> tuple[int, int]:
    """Return both numbers for a weight that is looked at by its parameter and in a list of live weights only."""
    parameter = nn.Parameter(torch.zeros(1))
    live = [parameter.detach()]
    mine = live[0]
    return _references(live, 0), _users(mine) if AVAILABLE else 0


_REFERENCES, _USERS = _alone()
