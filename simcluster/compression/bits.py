"""Small integers packed into bytes."""

from __future__ import annotations

import torch
from torch import Tensor

WIDTHS = (1, 2, 4, 8)


def width_for(values: int) -> int:
    """Return the fewest bits in WIDTHS that can represent *values* different values."""
    return next(width for width in WIDTHS if 2**width >= values)


def pack_bits(codes: Tensor, width: int) -> Tensor:
    """Pack *codes* (1-D, uint8, each below 2^width), 8 / width per byte, the first in the lowest bits."""
    per_byte = 8 // width
    missing = -len(codes) % per_byte
    if missing:
        codes = torch.cat([codes, codes.new_zeros(missing)])
    weights = torch.tensor([1 << place for place in range(0, 8, width)], dtype=torch.uint8, device=codes.device)
    return (codes.view(-1, per_byte) * weights).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, width: int, length: int) -> Tensor:
    """Return the first *length* codes in *packed*, as uint8."""
    shifts = torch.tensor(range(0, 8, width), dtype=torch.uint8, device=packed.device)
    codes = torch.bitwise_right_shift(packed.unsqueeze(1), shifts).bitwise_and(2**width - 1)
    return codes.flatten()[:length]
