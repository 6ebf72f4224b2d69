"""Read byte ranges of a file, after checking that the file contains them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

MOST_CONFIG: Final = 2**20
"""Limit on the bytes of a config.json."""


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor of a model: its *file*, its *shape* (rows first), and *nbytes* bytes from *begin*.

    *kind* is its type, as the file's format names it.
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
    """Raise ValueError unless a file of *length* bytes contains *size* bytes at *begin*."""
    if not 0 <= begin <= length - size:
        raise ValueError(f"{length:,} bytes, and a tensor at {begin:,} to {begin + size:,}")


def check_apart(tensors: Iterable[FileTensor]) -> None:
    """Raise ValueError if two of *tensors*, which are in one file, share bytes.

    Otherwise a small file could declare enough tensors to fill any memory.
    """
    end = 0
    for one in sorted(tensors, key=lambda one: one.begin):
        if one.nbytes and one.begin < end:
            raise ValueError(f"a tensor at {one.begin:,}, before the end of another at {end:,}")
        end = max(end, one.begin + one.nbytes)


def read_piece(
    file: BinaryIO, offset: int, size: int, first: int = 0, last: int | None = None
) -> npt.NDArray[np.uint8]:
    """Return the bytes [*first*, *last*) of the *size* bytes at *offset* in *file*.

    If *last* is None, it is *size*. Raise ValueError, before any allocation, if the file does not
    have all *size* bytes.
    """
    check_inside(os.fstat(file.fileno()).st_size, offset, size)
    last = size if last is None else last
    assert 0 <= first <= last <= size, "within the tensor"
    offset += first
    size = last - first
    piece = np.empty(size, np.uint8)
    file.seek(offset)
    rest = piece.data
    while rest:
        count = file.readinto(rest)  # type: ignore[attr-defined]  # or fewer bytes
        if not count:
            raise ValueError("an end in the middle of a tensor")
        rest = rest[count:]
    return piece


def read_mapping(file: BinaryIO, most: int = MOST_CONFIG) -> dict[str, Any]:
    """Return the mapping in the JSON *file*.

    Raise ValueError if it is malformed, not a mapping, or larger than *most* bytes.
    """
    text = file.read(most + 1)
    if len(text) > most:
        raise ValueError(f"a document of more than {most:,} bytes")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"a {type(found).__name__}")
    return found
