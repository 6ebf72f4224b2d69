"""A matrix of weights in the precision that a setting chooses.

A row of a product has the same bits whatever the other rows are, so that many sequences share one product, which reads
the weights once. Kernels differ between machines, so this is checked on each, once per shape; where it does not hold,
each sequence has a product by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.inference.models.architecture import Precision
from simcluster.process.intra_op import one_thread

LEAST_ROWS = 4
"""Fewer rows go through other kernels, with other bits. They are filled up with zeros, which takes no longer on x86."""

BLOCK_ROWS = 512
"""int8 weights are converted by blocks of this number of rows, which stay in the processor's cache."""

_PACKED_FOR = 8
_uniform: dict[tuple[object, ...], bool] = {}


class Matrix:
    """Weights (rows, columns) in f32, bf16, or int8 with one scale a row; products take and give f32.

    *table*: its rows are looked up. *multiplies*: it takes part in products; then f32 and bf16 are stored in the layout
    of oneDNN's kernels where torch has them, so a table that also multiplies is stored twice.
    """

    def __init__(
        self, weights: Tensor, precision: Precision = "f32", *, table: bool = False, multiplies: bool = True
    ) -> None:
        self._shape = tuple(weights.shape)
        self._scales: Tensor | None = None
        self._packed: Tensor | None = None
        if precision == "int8":
            scales = weights.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
            self._scales = scales
            self._dense: Tensor | None = (weights / scales).round().clamp(-127, 127).to(torch.int8)
        else:
            self._dense = weights.to(torch.bfloat16 if precision == "bf16" else torch.float32).contiguous()
            if multiplies and (packed := _packed(self._dense)) is not None:
                self._packed = packed
                self._dense = self._dense if table else None
        self.is_uniform = multiplies and is_uniform(
            self._run, self._shape[1], precision, self._packed is not None, self._shape
        )
        """Whether a row of a product is the same to the bit whatever the other rows are, from LEAST_ROWS rows on."""

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        packed = 0 if self._packed is None else self._packed.numel() * self._packed.element_size()
        return packed + sum(part.nbytes for part in (self._dense, self._scales) if part is not None)

    def product(self, inputs: Tensor, counts: Sequence[int]) -> Tensor:
        """Return *inputs* (n, columns) times the transpose: (n, rows). Each sequence has the next of *counts* rows."""
        if not self.is_uniform:
            return torch.cat([self._run(part) for part in torch.split(inputs, list(counts))])
        if len(inputs) >= LEAST_ROWS:
            return self._run(inputs)
        zeros = inputs.new_zeros(LEAST_ROWS - len(inputs), inputs.shape[1])
        return self._run(torch.cat((inputs, zeros)))[: len(inputs)]

    def rows(self, places: Tensor) -> Tensor:
        """Return the rows at *places*."""
        assert self._dense is not None, "a table"
        rows = self._dense[places].float()
        return rows if self._scales is None else rows * self._scales[places]

    def _run(self, inputs: Tensor) -> Tensor:
        if self._packed is not None:
            return _times(inputs.to(self._packed.dtype), self._packed).float()
        assert self._dense is not None
        if self._scales is None:
            return functional.linear(inputs.to(self._dense.dtype), self._dense).float()
        return self._by_blocks(inputs, self._dense) * self._scales[:, 0]

    def _by_blocks(self, inputs: Tensor, weights: Tensor) -> Tensor:
        outputs = inputs.new_empty(len(inputs), len(weights))
        block = inputs.new_empty(min(BLOCK_ROWS, len(weights)), weights.shape[1])
        for first in range(0, len(weights), BLOCK_ROWS):
            part = weights[first : first + BLOCK_ROWS]
            converted = block[: len(part)].copy_(part)
            outputs[:, first : first + BLOCK_ROWS] = functional.linear(inputs, converted)
        return outputs


def is_uniform(run: Callable[[Tensor], Tensor], columns: int, *kind: object) -> bool:
    """Return whether *run* gives each of its rows the same bits among any others, found once for each *kind*."""
    if kind not in _uniform:
        with one_thread(), torch.no_grad():
            inputs = torch.randn(40, columns, generator=torch.Generator().manual_seed(0))
            whole = run(inputs)
            parts = ((0, 4), (35, 5), (10, 8), (1, 13), (7, 33))
            _uniform[kind] = all(torch.equal(run(inputs[i : i + n]), whole[i : i + n]) for i, n in parts)
    return _uniform[kind]


def _packed(weights: Tensor) -> Tensor | None:
    """Return *weights* in the layout of oneDNN's kernels; None where torch is built without them, or the processor has
    none for the type.
    """
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight.default(weights, _PACKED_FOR)
        _times(weights.new_zeros(LEAST_ROWS, weights.shape[1]), packed)
    except (AttributeError, RuntimeError):
        return None
    return packed


def _times(inputs: Tensor, packed: Tensor) -> Tensor:
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise.default(inputs, packed, None, "none", [], "")
    return outputs
