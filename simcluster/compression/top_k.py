"""Selection of a fixed share of a vector's numbers, the largest by magnitude.

Stich, Cordonnier and Jaggi 2018, definition 2.1: |C(v) - v|^2 <= (1 - k/d) |v|^2, which, with error
feedback, is enough to converge like the dense method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from simcluster.compression.compressor import FeedbackCompressor, StreamMemory, VectorLayout

Fraction = Annotated[float, Field(gt=0, le=1)]


def count(fraction: float, length: int) -> int:
    """Return *fraction* of *length*, rounded up and at least 1.

    A product that exceeds an integer by at most 1e-9 is not rounded up.
    """
    return min(length, max(1, math.ceil(fraction * length - 1e-9)))


class TopK(FeedbackCompressor):
    """A compressor that sends the largest *fraction* of the numbers and their positions, at 8 bytes
    per float32 sent.
    """

    summed = "whole"

    kind: Literal["top_k"] = "top_k"
    fraction: Fraction = 0.01

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        largest = torch.topk(vector.abs(), count(self.fraction, len(vector)), sorted=False).indices
        places = largest.sort().values
        return [vector.index_select(0, places), places.to(torch.int32 if len(vector) < 2**31 else torch.int64)]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        values, places = parts
        return values.new_zeros(layout.length).index_copy(0, places.to(torch.int64), values)
