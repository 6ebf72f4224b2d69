"""Conversion of lists of tensors into one vector and back: a model is a list of tensors, but
schedules split vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simcluster.collectives.operators import Combine, plus
from simcluster.rounds import where


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Return all *tensors* concatenated in one new vector."""
    # While a dispatch mode counts operators, torch's own operator must run.
    if tensors and tensors[0].is_meta and not torch._C._len_torch_dispatch_stack():
        first = tensors[0]
        if all(tensor.is_meta and tensor.dtype is first.dtype for tensor in tensors):
            # On meta tensors, torch's own concatenation takes 30 us, and the first call imports its
            # compiler.
            length = sum([tensor.numel() for tensor in tensors])
            return torch.empty(length, dtype=first.dtype, device="meta")
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Split *vector* into pieces with the shapes of *like*, and return them as views."""
    lengths = [tensor.numel() for tensor in like]
    if vector.is_meta and _has_form(vector, like, sum(lengths)) and not torch._C._len_torch_dispatch_stack():
        return [tensor.detach() for tensor in like]  # on meta tensors, views take ten times as long
    return [piece.view(tensor.shape) for piece, tensor in zip(torch.split(vector, lengths), like, strict=True)]


def _has_form(vector: Tensor, like: Sequence[Tensor], length: int) -> bool:
    """Return whether the tensors of *like*, which have *length* elements in total, are on meta and
    can stand in for the pieces of *vector*.
    """
    dtype = vector.dtype
    return (
        vector.shape == (length,)
        and not vector.requires_grad
        and all(tensor.is_meta and tensor.dtype is dtype and tensor.is_contiguous() for tensor in like)
    )


def unflatten_parts(parts: Sequence[Tensor], like: Sequence[Tensor]) -> list[list[Tensor]]:
    """Split the vector that *parts* make up into pieces with the lengths of *like*.

    Return each piece as a list of views of *parts*.
    """
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
    """Return the tensors that `as_bytes` turned into *vector*, in the shapes and dtypes of *like*."""
    pieces = torch.split(vector, [tensor.nbytes for tensor in like])
    # Clone, since a tensor must start at a multiple of its element size.
    return [piece.clone().view(tensor.dtype).view(tensor.shape) for piece, tensor in zip(pieces, like, strict=True)]


def lengths_of(length: int, parts: int) -> list[int]:
    """Return the lengths of the *parts* that `tensor_split` makes of a vector of *length*."""
    each, longer = divmod(length, parts)
    return [each + 1] * longer + [each] * (parts - longer)


def start_of(part: Any, length: int, parts: int) -> Any:
    """Return the first index of *part* when `tensor_split` splits a vector of *length* into
    *parts*. For an array of parts, return an array.
    """
    each, longer = divmod(length, parts)
    return part * each + where(part < longer, part, longer)


def length_of(part: Any, length: int, parts: int) -> Any:
    """Return the length of *part* when `tensor_split` splits a vector of *length* into *parts*. For
    an array of parts, return an array.
    """
    each, longer = divmod(length, parts)
    return each + (part < longer) if longer else each


def summed(parts: Sequence[Tensor], combine: Combine = plus) -> Tensor:
    """Combine *parts* in their order, by default into their sum, and return it as a new tensor."""
    total = parts[0].clone()
    for part in parts[1:]:
        combine(total, part, out=total)
    return total
