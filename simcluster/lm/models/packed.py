"""Rows of weights in the layout of oneDNN's kernels.

oneDNN makes a kernel for each number of inputs and keeps it: half a megabyte each, up to 1,024 of them. So inputs are
filled up with zeros to a few numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import torch
from torch import Tensor

from simcluster.process.intra_op import one_thread

LEAST: Final = 4
"""Fewer inputs go through other kernels, with other bits. Filled up they take no longer on x86."""

CHECKED: Final = 2 * LEAST
"""The number of inputs with which a kernel is compared at first; other numbers are when they occur."""

_PACKED_FOR: Final = 8
_BYTE: Final = 256
"""bf16 has all whole numbers below this one."""

Places: TypeAlias = tuple[Tensor, Tensor]
"""Where the rows begin in memory, and where their numbers are from there."""

_uniform: dict[tuple[object, ...], bool] = {}


class PackedMatrix:
    """*weights* (rows, columns) in f32 or bf16. *table*: its rows are looked up."""

    def __init__(self, weights: Tensor, *, table: bool = False) -> None:
        self.shape, self._dtype = tuple(weights.shape), weights.dtype
        self._packed = _reordered(weights)
        self._dense: Tensor | None = None
        self._places: Places | None = None
        if table:
            self._places = _places(self.shape, self._dtype)
            if self._places is None or not torch.equal(self.rows(torch.arange(len(weights))), weights):
                self._places, self._dense = None, weights
        self.is_uniform = self._is_alike(CHECKED)

    @property
    def nbytes(self) -> int:
        """The memory in use. A table whose layout is not understood is stored twice."""
        itself = self._packed.numel() * self._packed.element_size()
        return itself if self._dense is None else itself + self._dense.nbytes

    def times(self, inputs: Tensor) -> Tensor:
        """Return *inputs* (n, columns) times the transpose: (n, rows)."""
        count = len(inputs)
        size = filled(count)
        if size > count:
            inputs = torch.cat((inputs, inputs.new_zeros(size - count, self.shape[1])))
        if size == LEAST or self._is_alike(size):
            return self._times(inputs)[:count]
        return torch.cat([self._times(part) for part in torch.split(inputs, LEAST)])[:count]

    def _is_alike(self, size: int) -> bool:
        return is_uniform(self._times, self.shape[1], (LEAST, size), self._dtype, self.shape, size)

    def rows(self, places: Tensor) -> Tensor:
        """Return the rows at *places*."""
        if self._dense is not None:
            return self._dense[places]
        assert self._places is not None, "a table"
        begins, numbers = self._places
        return _memory(self._packed, self._dtype)[begins[places][:, None] + numbers]

    def _times(self, inputs: Tensor) -> Tensor:
        inputs = inputs.to(self._dtype)
        outputs: Tensor = torch.ops.mkldnn._linear_pointwise.default(inputs, self._packed, None, "none", [], "")
        return outputs


@lru_cache
def can_pack(dtype: torch.dtype) -> bool:
    """Return whether torch has those kernels, and the processor has one for *dtype*."""
    try:
        PackedMatrix(torch.zeros(64, 64, dtype=dtype))
    except (AttributeError, RuntimeError):
        return False
    return True


def is_uniform(run: Callable[[Tensor], Tensor], columns: int, sizes: Sequence[int], *kind: object) -> bool:
    """Return whether *run* gives a row the same bits among any of *sizes* rows, found once for each *kind*."""
    if kind not in _uniform:
        most = max(sizes)
        with one_thread(), torch.no_grad():
            inputs = torch.randn(most, columns, generator=torch.Generator().manual_seed(0))
            whole = run(inputs)
            spans = [(at, size) for size in sizes if size < most for at in {0, min(1, most - size), most - size}]
            _uniform[kind] = all(torch.equal(run(inputs[i : i + n]), whole[i : i + n]) for i, n in spans)
    return _uniform[kind]


def filled(count: int) -> int:
    """Return the number to which *count* inputs are padded: four sizes per doubling, all multiples of LEAST."""
    step = max(LEAST, 1 << (count - 1).bit_length() >> 3)
    return -(-count // step) * step


def _reordered(weights: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight.default(weights, _PACKED_FOR)
    return packed


def _memory(packed: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the memory of *packed*, which must outlive the result."""
    size = torch.ops.mkldnn._nbytes.default(packed)
    begin = torch.ops.mkldnn.data_ptr.default(packed)
    return torch.frombuffer((ctypes.c_byte * size).from_address(begin), dtype=dtype)


@lru_cache(maxsize=64)
def _places(shape: tuple[int, int], dtype: torch.dtype) -> Places | None:
    """Return the places of such weights; None unless each is the sum of its row's and its column's.

    Weights that count their places are reordered, a byte of the count at a time.
    """
    rows, columns = shape
    count = torch.arange(1, rows * columns + 1, dtype=torch.int32)  # 0 fills up
    found, most = torch.zeros((), dtype=torch.int32), rows * columns
    try:
        for digit in (_BYTE**power for power in range(4) if _BYTE**power <= most):
            packed = _reordered((count // digit % _BYTE).to(dtype).view(shape))
            found = found + _memory(packed, dtype).to(torch.int32) * digit
    except (AttributeError, RuntimeError):
        return None
    place_of = torch.empty(most + 1, dtype=torch.int64)
    place_of[found.long()] = torch.arange(len(found))
    places = place_of[1:].view(shape)
    begins, numbers = places[:, 0].clone(), places[0] - places[0, 0]
    return (begins, numbers) if torch.equal(begins[:, None] + numbers, places) else None
