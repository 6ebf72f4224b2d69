"""Pieces of a file: read at their offsets, only what is asked for, never more than the file has."""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

MOST_CONFIG: Final = 2**20
"""Limit on the bytes of a config.json."""


def read_piece(
    file: BinaryIO, offset: int, size: int, first: int = 0, last: int | None = None
) -> npt.NDArray[np.uint8]:
    """Return the bytes [*first*, *last*) of the *size* bytes at *offset* of *file*, by default all.

    Raises ValueError, before allocating, if the file ends before all of them.
    """
    length = os.fstat(file.fileno()).st_size
    if not 0 <= offset <= length - size:
        raise ValueError(f"{length:,} bytes, and a tensor at {offset:,} to {offset + size:,}")
    last = size if last is None else last
    assert 0 <= first <= last <= size, "within the tensor"
    offset, size = offset + first, last - first
    piece = np.empty(size, np.uint8)
    file.seek(offset)
    rest = piece.data
    while rest:
        count = file.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise ValueError("an end in the middle of a tensor")
        rest = rest[count:]
    return piece


def read_json(file: BinaryIO, most: int) -> Any:
    """Return the JSON document of at most *most* bytes in *file*. Raises ValueError."""
    text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"a document of more than {most:,} bytes")
    return json.loads(text)
