"""A few levels per number, rounded at random so that the result is unbiased.

Alistarh et al. 2017 (QSGD), section 3.1 and the buckets of section 4: E[Q(v)] = v, and E|Q(v) - v|^2 <= min(d/s^2,
sqrt(d)/s) |v|^2 for s levels and buckets of d numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from simcluster.compression.bits import pack_bits, unpack_bits, width_for
from simcluster.compression.compressor import Compressor, StreamMemory, VectorLayout


class Qsgd(Compressor):
    """*levels* of each sign (s in the paper), of the Euclidean norm of each *bucket* of numbers.

    A level from -s to s takes a fixed width: 2 bits for 1 level, 4 for up to 7, 8 for up to 127; a bucket's norm takes
    4 bytes.
    """

    kind: Literal["qsgd"] = "qsgd"
    levels: Annotated[int, Field(ge=1, le=127)] = 7
    bucket: PositiveInt = 512

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        buckets = self._buckets(vector)
        norms = torch.linalg.vector_norm(buckets, dim=1)
        divisors = torch.where(norms == 0, torch.ones_like(norms), norms).unsqueeze(1)
        levels = buckets.abs() / divisors * self.levels
        lower = levels.floor()
        # Rounded up with the probability that makes it unbiased.
        level = (lower + (memory.uniform(levels) < levels - lower)).clamp(max=self.levels)
        codes = (level * buckets.sign() + self.levels).to(torch.uint8)
        return [pack_bits(codes.view(-1)[: len(vector)], self._width), norms]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        packed, norms = parts
        levels = unpack_bits(packed, self._width, layout.length).to(layout.dtype) - self.levels
        return (self._buckets(levels) / self.levels * norms.unsqueeze(1)).view(-1)[: layout.length]

    @property
    def _width(self) -> int:
        return width_for(2 * self.levels + 1)

    def _buckets(self, vector: Tensor) -> Tensor:
        bucket = min(self.bucket, len(vector))
        missing = -len(vector) % bucket
        return (torch.cat([vector, vector.new_zeros(missing)]) if missing else vector).view(-1, bucket)
