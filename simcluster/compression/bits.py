"""Packing of small integers into bytes."""

from __future__ import annotations

import torch
from torch import Tensor

WIDTHS = (1, 2, 4, 8)


def width_for(values: int) -> int:
    """Return the smallest width in WIDTHS whose bits can represent *values* different values."""
    return next(width for width in WIDTHS if 2**width >= values)


def pack_bits(codes: Tensor, width: int) -> Tensor:
    """Pack *codes* (1-D, uint8, each below 2^width) into bytes, 8 / width codes per byte, the first
    code in the lowest bits; return the bytes.
    """
    weights = torch.tensor([1 << place for place in range(0, 8, width)], dtype=torch.uint8, device=codes.device)
    return (in_rows(codes, 8 // width) * weights).sum(1, dtype=torch.uint8)


def in_rows(vector: Tensor, length: int) -> Tensor:
    """Return *vector* as rows of *length* numbers; the last row is padded with zeros."""
    missing = -len(vector) % length
    return (torch.cat([vector, vector.new_zeros(missing)]) if missing else vector).view(-1, length)


def unpack_bits(packed: Tensor, width: int, length: int) -> Tensor:
    """Return the first *length* codes in *packed*, as uint8."""
    shifts = torch.tensor(range(0, 8, width), dtype=torch.uint8, device=packed.device)
    codes = torch.bitwise_right_shift(packed.unsqueeze(1), shifts).bitwise_and(2**width - 1)
    return codes.flatten()[:length]
