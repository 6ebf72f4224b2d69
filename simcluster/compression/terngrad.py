"""Reduction of each number to -1, 0 or 1 times the tensor's maximum magnitude, in two bits. It is
drawn at random so that the result is unbiased.

Wen et al. 2017 (TernGrad), equation 1: each number keeps its sign with the probability |v_i| / max
|v|, and otherwise becomes 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from simcluster.compression.bits import pack_bits, unpack_bits
from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout
from simcluster.compression.sign import spread


class TernGrad(Compressor):
    """A compressor to ternary numbers, with one scale per tensor (section 4.1 of the paper).

    *clip*: numbers are first clipped to this many standard deviations of their tensor (2.5 in
    section 4.2), which reduces variance but adds bias; null for no clipping.
    """

    kind: Literal["terngrad"] = "terngrad"
    clip: PositiveFloat | None = None

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        pieces = [self._clipped(piece) for piece in torch.split(vector, layout.lengths) if len(piece)]
        scalers = torch.stack([piece.abs().amax() for piece in pieces])
        safe = torch.where(scalers == 0, torch.ones_like(scalers), scalers)
        chances = torch.cat([piece.abs() / scaler for piece, scaler in zip(pieces, safe.unbind(), strict=True)])
        kept = memory.uniform(chances) < chances
        codes = (vector.sign() * kept + 1).to(torch.uint8)
        return [pack_bits(codes, 2), scalers]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        packed, scalers = parts
        return spread(unpack_bits(packed, 2, layout.length).to(layout.dtype) - 1, scalers, layout)

    def _clipped(self, piece: Tensor) -> Tensor:
        if self.clip is None:
            return piece
        limit = self.clip * piece.std(correction=0)
        return torch.maximum(torch.minimum(piece, limit), -limit)
