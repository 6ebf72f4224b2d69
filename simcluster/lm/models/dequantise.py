"""Numbers of a file as f32. GGUF's by the formulas of ggml: blocks of 32 share a scale, and some a least value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def _f16(data: Bytes) -> Floats:
    return data.view("<f2").astype(np.float32)


def _bf16(data: Bytes) -> Floats:
    return (data.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _f32(data: Bytes) -> Floats:
    return data.view("<f4").astype(np.float32, copy=False)


def _f64(data: Bytes) -> Floats:
    with np.errstate(over="ignore"):
        return data.view("<f8").astype(np.float32)


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


CONVERT: Final[Mapping[str, Callable[[Bytes], Floats]]] = {
    "F32": _f32, "F16": _f16, "Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0, "BF16": _bf16, "F64": _f64,
}  # fmt: skip
"""The name of a format, GGUF's or that of safetensors -> a function that returns its blocks' numbers in f32."""
