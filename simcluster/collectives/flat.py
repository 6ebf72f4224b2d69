"""A list of tensors as one vector, and back: schedules cut vectors, models have lists.

This file knows shapes. It must not know ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """All *tensors* end to end in one new vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """The pieces of *vector* in the shapes of *like*: views, no copies."""
    pieces = torch.split(vector, [tensor.numel() for tensor in like])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, like, strict=True)]
