"""A matrix of weights in the precision that a setting chooses."""

from __future__ import annotations

from copy import copy

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.inference.models.architecture import Precision


class Matrix:
    """Weights (rows, columns) in f32, bf16, or int8 with one scale a row; products take and give f32."""

    def __init__(self, weights: Tensor, precision: Precision = "f32") -> None:
        self._scales: Tensor | None = None
        if precision == "int8":
            scales = weights.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
            self._scales = scales
            self._weights = (weights / scales).round().clamp(-127, 127).to(torch.int8)
        else:
            self._weights = weights.to(torch.bfloat16 if precision == "bf16" else torch.float32).contiguous()

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        return self._weights.nbytes + (0 if self._scales is None else self._scales.nbytes)

    def part(self, first: int, last: int) -> Matrix:
        """Return the rows [*first*, *last*), which share this one's memory."""
        found = copy(self)
        found._weights = self._weights[first:last]
        found._scales = None if self._scales is None else self._scales[first:last]
        return found

    def product(self, inputs: Tensor) -> Tensor:
        """Return *inputs* (n, columns) times the transpose: (n, rows)."""
        if self._scales is not None:
            return functional.linear(inputs, self._weights.float()) * self._scales[:, 0]
        return functional.linear(inputs.to(self._weights.dtype), self._weights).float()

    def rows(self, places: Tensor) -> Tensor:
        """Return the rows at *places*."""
        rows = self._weights[places].float()
        return rows if self._scales is None else rows * self._scales[places]
