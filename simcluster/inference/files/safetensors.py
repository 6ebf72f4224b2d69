"""The header of a safetensors file: where its tensors are. No tensor is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final

MOST_JSON: Final = 8 * 2**20
MOST_NUMBER, MOST_RANK = 2**62, 8
"""Limits on the bytes of a header, its numbers, and the dimensions of a tensor."""

ITEM_BYTES: Final[Mapping[str, int]] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""The format's name of a type -> its bytes per number; others are not weights."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a file: its *dtype* by the format's name, its *shape*, and its bytes [*begin*, *end*) in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def is_known(self) -> bool:
        return self.dtype in ITEM_BYTES

    @property
    def fits(self) -> bool:
        """Whether the bytes are those of the shape and type."""
        return self.end - self.begin == ITEM_BYTES.get(self.dtype, -1) * math.prod(self.shape)


def read_entries(file: BinaryIO) -> dict[str, Entry]:
    """Return the tensors of *file* by name. Raises ValueError, LookupError, TypeError or AttributeError without."""
    size = int.from_bytes(file.read(8), "little")
    if size > MOST_JSON:
        raise ValueError(f"a header of {size:,} bytes; at most {MOST_JSON:,}")
    found = json.loads(file.read(size))
    return {name: _entry(entry, 8 + size) for name, entry in found.items() if name != "__metadata__"}


def _entry(entry: Mapping[str, object], start: int) -> Entry:
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(shape) > MOST_RANK or len(offsets) != 2:
        raise ValueError("a tensor without its shape and offsets")
    if not all(type(number) is int and 0 <= number < MOST_NUMBER for number in (*shape, *offsets)):
        raise ValueError(f"a tensor of shape {shape} at {offsets}")
    return Entry(str(entry["dtype"]), tuple(shape), start + offsets[0], start + offsets[1])
