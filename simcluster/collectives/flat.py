"""Lists of tensors as one vector, and back: schedules cut vectors, models have lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Return all *tensors* concatenated in one new vector."""
    if tensors and tensors[0].is_meta and not torch._C._len_torch_dispatch_stack():  # else operators are counted
        first = tensors[0]
        if all(tensor.is_meta and tensor.dtype is first.dtype for tensor in tensors):
            # Without values, torch's own concatenation takes 30 us, and first imports its compiler.
            length = sum([tensor.numel() for tensor in tensors])
            return torch.empty(length, dtype=first.dtype, device="meta")
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the pieces of *vector* in the shapes of *like*: views, not copies."""
    lengths = [tensor.numel() for tensor in like]
    if vector.is_meta and _has_form(vector, like, sum(lengths)) and not torch._C._len_torch_dispatch_stack():
        return [tensor.detach() for tensor in like]  # without values, torch's own views take ten times as long
    return [piece.view(tensor.shape) for piece, tensor in zip(torch.split(vector, lengths), like, strict=True)]


def _has_form(vector: Tensor, like: Sequence[Tensor], length: int) -> bool:
    """Return whether *like*, *length* numbers in all, already has the form of *vector*'s pieces without values."""
    dtype = vector.dtype
    return (
        vector.shape == (length,)
        and not vector.requires_grad
        and all(tensor.is_meta and tensor.dtype is dtype and tensor.is_contiguous() for tensor in like)
    )


def unflatten_parts(parts: Sequence[Tensor], like: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return, for each of *like*, the vectors that make it up, of a vector that is in *parts*: views, not copies."""
    found: list[list[Tensor]] = []
    rest = [part for part in parts if len(part)]
    for tensor in like:
        missing, pieces = tensor.numel(), list[Tensor]()
        while missing:
            piece, left = rest[0][:missing], rest[0][missing:]
            pieces.append(piece)
            missing -= len(piece)
            rest[:1] = [left] if len(left) else []
        found.append(pieces)
    return found


def as_bytes(tensors: Sequence[Tensor]) -> Tensor:
    """Return all *tensors*, of any dtypes, concatenated as one vector of bytes."""
    pieces = [tensor.reshape(-1).view(torch.uint8) for tensor in tensors]
    return torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8)


def from_bytes(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors that `as_bytes` was given, from its result, in the shapes and dtypes of *like*."""
    pieces = torch.split(vector, [tensor.nbytes for tensor in like])
    # Copied, since a tensor must start at a multiple of its element size.
    return [piece.clone().view(tensor.dtype).view(tensor.shape) for piece, tensor in zip(pieces, like, strict=True)]


def lengths_of(length: int, parts: int) -> list[int]:
    """Return the lengths of *parts* of a vector of *length*, as tensor_split cuts."""
    each, longer = divmod(length, parts)
    return [each + 1] * longer + [each] * (parts - longer)


def start_of(part: Any, length: int, parts: int) -> Any:
    """Return where *part*, or each of an array of them, begins."""
    each, longer = divmod(length, parts)
    return part * each + (np.minimum(part, longer) if longer else 0)


def length_of(part: Any, length: int, parts: int) -> Any:
    """Return the length of *part*, or of each of an array of them."""
    each, longer = divmod(length, parts)
    return each + (part < longer) if longer else each


def summed(parts: Sequence[Tensor]) -> Tensor:
    """Return the sum of *parts* as a new tensor, taken in their order."""
    total = parts[0].clone()
    for part in parts[1:]:
        total.add_(part)
    return total
