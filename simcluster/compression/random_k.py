"""Selection of a fixed share of a vector's numbers at random. A message has the selected numbers,
and a seed for their positions.

Wangni et al. 2018 (unbiased, each number scaled by d/k), or with error feedback Stich, Cordonnier and Jaggi 2018,
definition 2.1 (not scaled: a contraction by 1 - k/d on average).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from simcluster.compression.compressor import FeedbackCompressor, StreamMemory, VectorLayout
from simcluster.compression.top_k import Fraction, count


class RandomK(FeedbackCompressor):
    """A compressor that sends a random *fraction* of the numbers, at 4 bytes per float32 sent.

    It is unbiased without error feedback.
    """

    summed = "whole"

    kind: Literal["random_k"] = "random_k"
    fraction: Fraction = 0.01
    error_feedback: bool = False

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        seed = torch.tensor([memory.number()], dtype=torch.int64)
        if vector.is_meta:
            seed = seed.to("meta")
        values = vector.index_select(0, self._places(seed, len(vector)).to(vector.device))
        return [values if self.error_feedback else values * (len(vector) / len(values)), seed]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        values, seed = parts
        places = self._places(seed, layout.length).to(values.device)
        return values.new_zeros(layout.length).index_copy(0, places, values)

    def _places(self, seed: Tensor, length: int) -> Tensor:
        """Return the positions of the selected numbers, which are the same on every node that has
        *seed*.
        """
        if seed.is_meta:
            order = torch.empty(length, dtype=torch.int64, device="meta")
        else:
            order = torch.randperm(length, generator=torch.Generator().manual_seed(int(seed)))
        return order[: count(self.fraction, length)]
