"""Numbers of a GGUF file as f32, by the formulas of ggml: blocks of 32 share a scale, and some a least value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of weights: *block_bytes* hold *block* numbers, and *convert* returns those of many blocks in f32."""

    name: str
    block: int
    block_bytes: int
    convert: Callable[[Bytes], Floats]

    def nbytes(self, count: int) -> int:
        """Return the bytes of *count* numbers. Raises ValueError unless they are whole blocks."""
        if count % self.block:
            raise ValueError(f"{count:,} numbers of {self.name}, in blocks of {self.block}")
        return count // self.block * self.block_bytes


def _f16(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def _bf16(data: Bytes) -> Floats:
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _f32(data: Bytes) -> Floats:
    return data.view("<f4").astype(np.float32, copy=False)


def _column(blocks: Bytes, start: int) -> Floats:
    """Return the f16 at byte *start* of each block, as a column."""
    return _f16(np.ascontiguousarray(blocks[:, start : start + 2]))


def _nibbles(blocks: Bytes, start: int) -> Floats:
    """Return 32 numbers per block, from the 16 bytes from *start* on: first all low halves, then all high ones."""
    numbers = np.empty((len(blocks), 32), np.float32)
    numbers[:, :16], numbers[:, 16:] = blocks[:, start:] & 15, blocks[:, start:] >> 4
    return numbers


def _q8_0(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 34)
    numbers = blocks[:, 2:].view(np.int8).astype(np.float32)
    numbers *= _column(blocks, 0)
    return numbers.reshape(-1)


def _q4_0(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 18)
    numbers = _nibbles(blocks, 2)
    numbers -= 8
    numbers *= _column(blocks, 0)
    return numbers.reshape(-1)


def _q4_1(data: Bytes) -> Floats:
    blocks = data.reshape(-1, 20)
    numbers = _nibbles(blocks, 4)
    numbers *= _column(blocks, 0)
    numbers += _column(blocks, 2)
    return numbers.reshape(-1)


BY_NAME: Final[Mapping[str, Format]] = {
    one.name: one
    for one in (
        Format("F32", 1, 4, _f32),
        Format("F16", 1, 2, _f16),
        Format("Q4_0", 32, 18, _q4_0),
        Format("Q4_1", 32, 20, _q4_1),
        Format("Q8_0", 32, 34, _q8_0),
        Format("BF16", 1, 2, _bf16),
    )
}
"""GGUF's name of a format -> the format."""
