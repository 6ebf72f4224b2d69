"""One byte per number: each block is quantised to 255 equal steps from its minimum to its maximum.

The minimum is sent too, so a block may have any offset (such as weights of a normalisation, all near 1), and a constant
block is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout

STEPS = 255


class Int8(Compressor):
    """Blocks of *block* numbers, each with its minimum and step size: 1 + 8 / block bytes per float32."""

    kind: Literal["int8"] = "int8"
    block: PositiveInt = 2048

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        block = min(self.block, len(vector))
        # Padded with its last number, which changes no block's minimum or maximum.
        missing = -len(vector) % block
        padded = torch.cat([vector, vector[-1:].expand(missing)]) if missing else vector
        blocks = padded.view(-1, block)
        least, greatest = blocks.amin(1), blocks.amax(1)
        step = (greatest - least) / STEPS
        divisor = torch.where(step > 0, step, torch.ones_like(step))
        codes = ((blocks - least.unsqueeze(1)) / divisor.unsqueeze(1)).round().clamp(0, STEPS)
        return [codes.to(torch.uint8).view(-1)[: len(vector)], least, step]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        codes, least, step = parts
        block = min(self.block, len(codes))
        missing = -len(codes) % block
        padded = torch.cat([codes, codes.new_zeros(missing)]) if missing else codes
        blocks = padded.view(-1, block).to(layout.dtype)
        return (blocks * step.unsqueeze(1) + least.unsqueeze(1)).view(-1)[: len(codes)]
