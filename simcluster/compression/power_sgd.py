"""Low-rank approximation of matrices by products of two thin matrices. A step of power iteration,
which starts from the last result, finds them.

Vogels, Karimireddy and Jaggi 2019 (PowerSGD), algorithms 1 and 2: P = M Q, orthogonalised; Q = M^T
P; and P Q^T approximates M. Both products are linear in M, so ranks can average them by all-reduce
(simcluster.compression.mean). Vectors, and matrices that would not become smaller, are sent
uncompressed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor

from simcluster.compression.compressor import FeedbackCompressor, StreamMemory, VectorLayout


class PowerSgd(FeedbackCompressor):
    """A compressor that approximates matrices by ones of rank *rank*: it sends rank (n + m) numbers
    instead of n m.

    A tensor with more than two dimensions counts as a matrix: the first dimension gives the rows,
    all others together the columns. *warm_start*: whether to start from the last step's factors
    instead of random ones.
    """

    kind: Literal["power_sgd"] = "power_sgd"
    rank: PositiveInt = 2
    warm_start: bool = True

    def encode(self, vector: Tensor, layout: VectorLayout, memory: StreamMemory) -> list[Tensor]:
        matrices, rest = self.split(vector, layout)
        ps = [orthogonal(m @ q) for m, q in zip(matrices, self.start(layout, memory, vector), strict=True)]
        qs = [m.T @ p for m, p in zip(matrices, ps, strict=True)]
        self.keep(qs, memory)
        return [joined(ps, vector), joined(qs, vector), rest]

    def decode(self, parts: Sequence[Tensor], layout: VectorLayout) -> Tensor:
        ps, qs, rest = parts
        return self.join(self.lefts(ps, layout), self.rights(qs, layout), rest, layout)

    def split(self, vector: Tensor, layout: VectorLayout) -> tuple[list[Tensor], Tensor]:
        """Return (the matrices to compress, all other tensors as one vector)."""
        matrices, rest = [], []
        for piece, shape in zip(torch.split(vector, layout.lengths), layout.shapes, strict=True):
            sides = self._sides(shape)
            if sides is None:
                rest.append(piece)
            else:
                matrices.append(piece.view(sides))
        return matrices, joined(rest, vector)

    def join(self, ps: Sequence[Tensor], qs: Sequence[Tensor], rest: Tensor, layout: VectorLayout) -> Tensor:
        """Return the vector of all tensors, joined from the products of *ps* and *qs* and from
        *rest*.
        """
        compressed = [self._sides(shape) is not None for shape in layout.shapes]
        plain = [length for length, is_product in zip(layout.lengths, compressed, strict=True) if not is_product]
        products, others = ((p @ q.T).view(-1) for p, q in zip(ps, qs, strict=True)), iter(torch.split(rest, plain))
        return torch.cat([next(products if is_product else others) for is_product in compressed])

    def start(self, layout: VectorLayout, memory: StreamMemory, like: Tensor) -> list[Tensor]:
        """Return the initial Q of each matrix: the last Q, or normal numbers that are the same on
        every node.

        A column that has become zero, for example after a gradient of zeros, would stay zero, so it
        is drawn again.
        """
        old = memory.kept
        if old and (like.is_meta or all(bool(q.abs().amax(0).all()) for q in old)):
            return old
        fresh = [memory.common_normal(shape, like) for shape in self._shapes(layout, 1)]
        if not old:
            return fresh
        return [torch.where(mine.abs().amax(0) > 0, mine, new) for mine, new in zip(old, fresh, strict=True)]

    def keep(self, qs: list[Tensor], memory: StreamMemory) -> None:
        """Keep *qs* as the start of the next step."""
        if self.warm_start:
            memory.kept = qs

    def lefts(self, vector: Tensor, layout: VectorLayout) -> list[Tensor]:
        """Return the P of each matrix, as views of *vector*."""
        return self._cut(vector, self._shapes(layout, 0))

    def rights(self, vector: Tensor, layout: VectorLayout) -> list[Tensor]:
        """Return the Q of each matrix, as views of *vector*."""
        return self._cut(vector, self._shapes(layout, 1))

    def _cut(self, vector: Tensor, shapes: list[tuple[int, int]]) -> list[Tensor]:
        pieces = torch.split(vector, [rows * columns for rows, columns in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def _shapes(self, layout: VectorLayout, side: int) -> list[tuple[int, int]]:
        """Return the shape of each matrix's P, or Q if *side* is 1."""
        return [(sides[side], self.rank) for shape in layout.shapes if (sides := self._sides(shape)) is not None]

    def _sides(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Return (rows, columns) of a tensor of *shape* as a matrix, or None if it is sent
        uncompressed.
        """
        if len(shape) < 2:
            return None
        rows, columns = shape[0], math.prod(shape[1:])
        return (rows, columns) if self.rank * (rows + columns) < rows * columns else None


def orthogonal(matrix: Tensor) -> Tensor:
    """Return *matrix* with its columns made orthonormal (modified Gram-Schmidt). A column that
    depends linearly on earlier ones becomes zero.
    """
    columns: list[Tensor] = []
    least = 100 * torch.finfo(matrix.dtype).eps
    for column in matrix.unbind(1):
        before = torch.linalg.vector_norm(column)
        for other in columns:
            column = column - other * torch.dot(other, column)
        norm = torch.linalg.vector_norm(column)
        # Divide by infinity instead of multiplying by zero, so that NaN stays visible.
        columns.append(column / torch.where(norm <= least * before, torch.inf, norm))
    return torch.stack(columns, 1)


def joined(tensors: Sequence[Tensor], like: Tensor) -> Tensor:
    """Return all *tensors* concatenated in one vector, or an empty vector of *like*'s dtype and
    device if there are none.
    """
    return torch.cat([tensor.reshape(-1) for tensor in tensors]) if tensors else like.new_zeros(0)
