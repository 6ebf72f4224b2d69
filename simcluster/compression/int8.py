"""Quantisation to one byte per number: a block's range, from its minimum to its maximum, is divided
into 255 equal steps.

A block's minimum is also sent. So a block may have any offset (the weights of a normalisation, for
example, are near 1), and a constant block is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcluster.compression.bits import in_rows
from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout

STEPS = 255


class Int8(Compressor):
    """A compressor of blocks of *block* numbers. Each block has a minimum and a step size, so a
    float32 takes 1 + 8 / block bytes.
    """

    kind: Literal["int8"] = "int8"
    block: PositiveInt = 2048

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        block = min(self.block, len(vector))
        # Pad with the last number, which changes no block's minimum or maximum.
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
        blocks = in_rows(codes, min(self.block, len(codes))).to(layout.dtype)
        return (blocks * step.unsqueeze(1) + least.unsqueeze(1)).view(-1)[: len(codes)]
