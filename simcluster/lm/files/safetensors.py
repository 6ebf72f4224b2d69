"""The header of a safetensors file: the locations of its tensors. No tensor is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import BinaryIO, Final

from simcluster.lm.files.pieces import FileTensor

MOST_JSON: Final = 8 * 2**20
MOST_NUMBER, MOST_RANK = 2**62, 8
"""Limits on the bytes of a header, the numbers in it, and the dimensions of a tensor."""

FLOATS: Final = ("BF16", "F16", "F32", "F64")
"""Names of the types whose numbers the engine reads as they are."""

ITEM_BYTES: Final[Mapping[str, int]] = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "BOOL": 1,
    "I8": 1, "U8": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "I64": 8, "U64": 8,
}  # fmt: skip
"""Name of a type in a safetensors file -> bytes per number."""


def read_entries(file: BinaryIO, name: str) -> dict[str, FileTensor]:
    """Return the tensors of *file* by name; *name* is the name of the file.

    Raise ValueError, LookupError, TypeError or AttributeError if the header is malformed.
    """
    size = int.from_bytes(file.read(8), "little")
    if size > MOST_JSON:
        raise ValueError(f"a header of {size:,} bytes; at most {MOST_JSON:,}")
    found = json.loads(file.read(size))
    return {key: _place(name, entry, 8 + size) for key, entry in found.items() if key != "__metadata__"}


def _place(name: str, entry: Mapping[str, object], start: int) -> FileTensor:
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(shape) > MOST_RANK or len(offsets) != 2:
        raise ValueError("a tensor without its shape and offsets")
    if not all(type(number) is int and 0 <= number < MOST_NUMBER for number in (*shape, *offsets)):
        raise ValueError(f"a tensor of shape {shape} at {offsets}")
    begin, end = offsets
    return FileTensor(name, tuple(shape), start + begin, end - begin, str(entry["dtype"])[:20])
