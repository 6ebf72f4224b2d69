"""A byte a number: each block is cut into 255 equal steps from its least to its greatest value.

The least value travels itself, so a block may lie anywhere (weights of a normalisation, all near 1, included), and a
block of one value is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcluster.compression.compressor import Compressor
from simcluster.compression.layout import Layout, Memory

STEPS = 255


class Int8(Compressor):
    """Blocks of *block* numbers, each with its least value and step: 1 + 8 / block bytes a float32."""

    kind: Literal["int8"] = "int8"
    block: PositiveInt = 2048

    def encode(self, vector: Tensor, layout: Layout, memory: Memory) -> list[Tensor]:
        block = min(self.block, len(vector))
        # Padded by its last number, which changes no block's least and greatest.
        missing = -len(vector) % block
        padded = torch.cat([vector, vector[-1:].expand(missing)]) if missing else vector
        blocks = padded.view(-1, block)
        least, greatest = blocks.amin(1), blocks.amax(1)
        step = (greatest - least) / STEPS
        divisor = torch.where(step > 0, step, torch.ones_like(step))
        codes = ((blocks - least.unsqueeze(1)) / divisor.unsqueeze(1)).round().clamp(0, STEPS)
        return [codes.to(torch.uint8).view(-1)[: len(vector)], least, step]

    def decode(self, parts: Sequence[Tensor], layout: Layout) -> Tensor:
        codes, least, step = parts
        block = min(self.block, len(codes))
        missing = -len(codes) % block
        padded = torch.cat([codes, codes.new_zeros(missing)]) if missing else codes
        blocks = padded.view(-1, block).to(layout.dtype)
        return (blocks * step.unsqueeze(1) + least.unsqueeze(1)).view(-1)[: len(codes)]
