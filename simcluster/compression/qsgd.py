"""Quantisation of each number to one of a few levels. Numbers are rounded at random so that the
result is unbiased.

Alistarh et al. 2017 (QSGD), section 3.1 and the buckets of section 4: E[Q(v)] = v, and E|Q(v) - v|^2 <= min(d/s^2,
sqrt(d)/s) |v|^2 for s levels and buckets of d numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from simcluster.compression.bits import in_rows, pack_bits, unpack_bits, width_for
from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout


class Qsgd(Compressor):
    """A compressor that rounds each number to a multiple of norm / *levels*, where norm is the
    Euclidean norm of a bucket of *bucket* numbers. The paper calls *levels* s.

    A multiple from -s to s takes a fixed number of bits: 2 for s = 1, 4 for s up to 7, and 8 for s
    up to 127. A bucket's norm takes 4 bytes.
    """

    kind: Literal["qsgd"] = "qsgd"
    levels: Annotated[int, Field(ge=1, le=127)] = 7
    bucket: PositiveInt = 512

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        buckets = in_rows(vector, min(self.bucket, len(vector)))
        norms = torch.linalg.vector_norm(buckets, dim=1)
        divisors = torch.where(norms == 0, torch.ones_like(norms), norms).unsqueeze(1)
        levels = buckets.abs() / divisors * self.levels
        lower = levels.floor()
        # Round up with the probability that makes the result unbiased.
        level = (lower + (memory.uniform(levels) < levels - lower)).clamp(max=self.levels)
        codes = (level * buckets.sign() + self.levels).to(torch.uint8)
        return [pack_bits(codes.view(-1)[: len(vector)], self._width), norms]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        packed, norms = parts
        levels = unpack_bits(packed, self._width, layout.length).to(layout.dtype) - self.levels
        buckets = in_rows(levels, min(self.bucket, layout.length))
        return (buckets / self.levels * norms.unsqueeze(1)).view(-1)[: layout.length]

    @property
    def _width(self) -> int:
        return width_for(2 * self.levels + 1)
