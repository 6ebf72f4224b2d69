"""Reduction of each number to its sign, one bit. One scale per tensor gives the magnitude.

Bernstein et al. 2018 (signSGD: signs alone; the sign of the sum over ranks is their majority vote), Karimireddy et al.
2019, algorithm 1 (scaled by the mean magnitude, with error feedback, without which the method need not converge).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from simcluster.compression.bits import pack_bits, unpack_bits
from simcluster.compression.compressor import FeedbackCompressor, StreamMemory, VectorLayout


class Sign(FeedbackCompressor):
    """A compressor that sends the signs and, if *scaled*, the mean magnitude of each tensor.

    If not scaled, numbers are decoded as 1 or -1.
    """

    kind: Literal["sign"] = "sign"
    scaled: bool = True

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        signs = pack_bits((vector >= 0).to(torch.uint8), 1)
        if not self.scaled:
            return [signs]
        amounts = [piece.abs().mean() for piece in torch.split(vector, layout.lengths) if len(piece)]
        return [signs, torch.stack(amounts)]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        signs = unpack_bits(parts[0], 1, layout.length).to(layout.dtype) * 2 - 1
        return spread(signs, parts[1], layout) if self.scaled else signs


def spread(vector: Tensor, scales: Tensor, layout: VectorLayout) -> Tensor:
    """Multiply each tensor in *vector*, in place, by its entry in *scales*; return *vector*."""
    lengths = [length for length in layout.lengths if length]
    for piece, scale in zip(torch.split(vector, lengths), scales.unbind(), strict=True):
        piece.mul_(scale)
    return vector
