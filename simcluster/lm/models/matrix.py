"""A matrix of weights in the precision that a setting chooses.

A row of a product has the same bits whatever the other rows are, so that many sequences share one product, which reads
the weights once. Kernels differ between machines, so this is checked on each, once per shape; where it does not hold,
each sequence has a product by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from simcluster.lm.models.architecture import Precision
from simcluster.lm.models.packed import LEAST, PackedMatrix, can_pack, is_uniform

LEAST_ROWS: Final = LEAST

CONVERTED_ROWS: Final = 512
"""int8 weights are converted by blocks of this number of rows, which stay in the processor's cache."""

BLOCK_BYTES: Final = 8 * 2**20
"""Weights are packed by blocks of at most this many bytes of f32: while one is, it takes memory twice."""

_ALIGNED_ROWS: Final = 64
_CHECKED: Final = (LEAST_ROWS, 5, 8, 13, 33, 40)
_DTYPES: Final = {"f32": torch.float32, "bf16": torch.bfloat16}


class Matrix:
    """Weights of a *shape* (rows, columns) in f32, bf16, or int8 with one scale per row; products take and give f32.

    *pieces* are rows, one after another. *table*: its rows are looked up. *multiplies*: it takes part in products; then
    f32 and bf16 are stored in the layout of oneDNN's kernels where torch has them.
    """

    def __init__(
        self,
        pieces: Iterable[Tensor],
        shape: tuple[int, int],
        precision: Precision = "f32",
        *,
        table: bool = False,
        multiplies: bool = True,
    ) -> None:
        self.shape = shape
        self._scales: Tensor | None = None
        self._dense: Tensor | None = None
        self._blocks: list[PackedMatrix] = []
        parts = iter(pieces)
        parts = chain([next(parts)], parts)  # read before memory is taken: a file may claim any shape
        if precision == "int8":
            self._dense, self._scales = _quantised(parts, shape)
        elif multiplies and can_pack(_DTYPES[precision]):
            self._blocks = [PackedMatrix(block, table=table) for block in _in_blocks(parts, shape, _DTYPES[precision])]
        else:
            (self._dense,) = _in_blocks(parts, shape, _DTYPES[precision], most=1)
        self.is_uniform = multiplies and (
            all(block.is_uniform for block in self._blocks)
            if self._blocks
            else is_uniform(self._run, shape[1], _CHECKED, precision, shape)
        )
        """Whether a row of a product is the same to the bit whatever the other rows are, from LEAST_ROWS rows on."""

    @property
    def nbytes(self) -> int:
        """The memory in use."""
        return sum(part.nbytes for part in (*self._blocks, self._dense, self._scales) if part is not None)

    def product(self, inputs: Tensor, counts: Sequence[int]) -> Tensor:
        """Return *inputs* (n, columns) times the transpose: (n, rows). Each sequence has the next of *counts* rows."""
        if not self.is_uniform:
            return torch.cat([self._run(part) for part in torch.split(inputs, list(counts))])
        if self._blocks or len(inputs) >= LEAST_ROWS:
            return self._run(inputs)
        zeros = inputs.new_zeros(LEAST_ROWS - len(inputs), inputs.shape[1])
        return self._run(torch.cat((inputs, zeros)))[: len(inputs)]

    def rows(self, places: Tensor) -> Tensor:
        """Return the rows at *places*."""
        if self._blocks:
            return looked_up(self._blocks, places)
        assert self._dense is not None, "a table"
        rows = self._dense[places].float()
        return rows if self._scales is None else rows * self._scales[places]

    def _run(self, inputs: Tensor) -> Tensor:
        if self._blocks:
            parts = [block.times(inputs) for block in self._blocks]
            return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)).float()
        assert self._dense is not None
        if self._scales is None:
            return functional.linear(inputs.to(self._dense.dtype), self._dense).float()
        return self._by_blocks(inputs, self._dense) * self._scales[:, 0]

    def _by_blocks(self, inputs: Tensor, weights: Tensor) -> Tensor:
        outputs = inputs.new_empty(len(inputs), len(weights))
        block = inputs.new_empty(min(CONVERTED_ROWS, len(weights)), weights.shape[1])
        for first in range(0, len(weights), CONVERTED_ROWS):
            part = weights[first : first + CONVERTED_ROWS]
            converted = block[: len(part)].copy_(part)
            outputs[:, first : first + CONVERTED_ROWS] = functional.linear(inputs, converted)
        return outputs


class TableRows(Protocol):
    """Some rows of a table."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def rows(self, places: Tensor) -> Tensor: ...


def looked_up(parts: Sequence[TableRows], places: Tensor) -> Tensor:
    """Return in f32 the rows at *places* of a table that is in *parts*, one after another."""
    ends = torch.tensor([part.shape[0] for part in parts]).cumsum(0)
    among = torch.bucketize(places, ends, right=True)
    found = torch.empty(len(places), parts[0].shape[1])
    for place in sorted(set(among.tolist())):
        part, inside = parts[place], among == place
        found[inside] = part.rows(places[inside] - (ends[place] - part.shape[0])).float()
    return found


def _in_blocks(
    pieces: Iterable[Tensor], shape: tuple[int, int], dtype: torch.dtype, most: int | None = None
) -> Iterator[Tensor]:
    """Yield the rows of *pieces* in at most *most* blocks; without it, in a power of two of BLOCK_BYTES, so that most
    are alike.
    """
    (rows, columns), begin, filled = shape, 0, 0
    count = most or 1 << (-(-4 * rows * columns // BLOCK_BYTES) - 1).bit_length()
    each = min(rows, -(-rows // count // _ALIGNED_ROWS) * _ALIGNED_ROWS) if count > 1 else rows
    block = torch.empty(each, columns, dtype=dtype)
    for piece in pieces:
        rest = piece
        while len(rest):
            taken = min(len(rest), len(block) - filled)
            block[filled : filled + taken] = rest[:taken]
            filled, rest = filled + taken, rest[taken:]
            if filled == len(block):
                yield block
                begin, filled = begin + filled, 0
                block = torch.empty(min(each, rows - begin), columns, dtype=dtype)


def _quantised(pieces: Iterable[Tensor], shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return *pieces* as whole numbers from -127 to 127, and the scale of each row."""
    numbers, scales, first = torch.empty(shape, dtype=torch.int8), torch.empty(shape[0], 1), 0
    for piece in pieces:
        own = slice(first, first := first + len(piece))
        scales[own] = piece.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / 127
        numbers[own] = (piece / scales[own]).round().clamp(-127, 127)
    return numbers, scales
