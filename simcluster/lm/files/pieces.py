"""Pieces of a file: read at their offsets, only what is asked for, never more than the file has."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

MOST_CONFIG: Final = 2**20
"""Limit on the bytes of a config.json."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of a model: the *file* that has it, its *shape* (rows first), and its bytes there. *kind*: its type, by
    the name of the file's format.
    """

    file: str
    shape: tuple[int, ...]
    begin: int
    nbytes: int
    kind: str

    @property
    def count(self) -> int:
        return math.prod(self.shape)


def check_inside(length: int, begin: int, size: int) -> None:
    """Raise ValueError unless a file of *length* bytes has the *size* bytes from *begin* on."""
    if not 0 <= begin <= length - size:
        raise ValueError(f"{length:,} bytes, and a tensor at {begin:,} to {begin + size:,}")


def read_piece(
    file: BinaryIO, offset: int, size: int, first: int = 0, last: int | None = None
) -> npt.NDArray[np.uint8]:
    """Return the bytes [*first*, *last*) of the *size* bytes at *offset* of *file*, by default all.

    Raises ValueError, before allocating, if the file ends before all of them.
    """
    check_inside(os.fstat(file.fileno()).st_size, offset, size)
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


def read_mapping(file: BinaryIO, most: int = MOST_CONFIG) -> dict[str, Any]:
    """Return the mapping of the JSON document of at most *most* bytes in *file*. Raises ValueError."""
    text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"a document of more than {most:,} bytes")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}")
    return found
