"""Selection of the largest numbers of each chunk, in few bits, with an error feedback that decays.

Sarfi et al. 2025 (SparseLoCo), algorithm 1: m <- beta m + Delta; Delta' = Q(top-k of m); m <- m - Delta'. As the
compression of DiLoCo's outer gradients, with no outer momentum, m takes the momentum's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from simcluster.compression.bits import in_rows, pack_bits, unpack_bits
from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout
from simcluster.compression.top_k import Fraction, count


class SparseLoCo(Compressor):
    """A compressor that sends the largest *fraction* of every *chunk* of numbers: 2 bytes for a
    position, *bits* for a value, and a scale per chunk.

    Values are rounded to 2^bits levels from -scale to scale, the chunk's largest magnitude. *decay*
    (beta): the share of what was left out that is kept.
    """

    summed = "whole"

    kind: Literal["sparse_loco"] = "sparse_loco"
    fraction: Fraction = 0.01
    chunk: Annotated[int, Field(ge=1, le=2**15)] = 4096
    bits: Literal[2, 4, 8] = 2
    decay: Fraction = 0.95

    @property
    def feeds_back(self) -> bool:
        return True

    @property
    def kept_share(self) -> float:
        return self.decay

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        length, k, sent = self._form(layout)
        rows = torch.nn.functional.pad(vector.abs(), (0, -len(vector) % length), value=-1.0).view(-1, length)
        offsets = torch.topk(rows, k).indices.view(-1)[:sent]
        places = _places(offsets, length, k).sort().values
        values = in_rows(vector.index_select(0, places), k)
        scales = values.abs().amax(1)
        divisors = torch.where(scales == 0, torch.ones_like(scales), scales).unsqueeze(1)
        codes = ((values / divisors + 1) / 2 * (2**self.bits - 1)).round().to(torch.uint8).view(-1)[:sent]
        return [pack_bits(codes, self.bits), (places % length).to(torch.int16), scales]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        packed, offsets, scales = parts
        length, k, sent = self._form(layout)
        codes = in_rows(unpack_bits(packed, self.bits, sent).to(layout.dtype), k)
        values = ((codes * 2 / (2**self.bits - 1) - 1) * scales.unsqueeze(1)).view(-1)[:sent]
        return values.new_zeros(layout.length).index_copy(0, _places(offsets.to(torch.int64), length, k), values)

    def _form(self, layout: VectorLayout) -> tuple[int, int, int]:
        """Return (length of a chunk, numbers sent of each, numbers sent). The last chunk may be
        shorter.
        """
        length = min(self.chunk, layout.length)
        k, (whole, rest) = count(self.fraction, length), divmod(layout.length, length)
        return length, k, whole * k + (count(self.fraction, rest) if rest else 0)


def _places(offsets: Tensor, length: int, k: int) -> Tensor:
    """Return the positions in the vector of *offsets*, *k* for every chunk of *length* in order."""
    return offsets + torch.arange(len(offsets), device=offsets.device) // k * length
