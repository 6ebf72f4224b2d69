"""Memory that a rank's process and its node program share: the tensors of calls are in it, and are never sent.

The rank decides what is where; the other side only looks at places that it is told, after a check of their sizes.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from simcluster.payload import DTYPE_NAMES, DTYPES
from simcluster.scripts.messages import ArenaPlace

FIRST_BYTES, SEGMENT_BYTES = 1 << 20, 32 << 20
"""The size of the first segment, and the most of later ones, each twice as large as the one before it."""

NOWHERE = -1  # the segment of a tensor without values: it has a shape, and no memory
ALIGNED_BYTES = 64


def as_numbers(tensor: Tensor) -> Tensor:
    """Return a complex *tensor* as pairs of real numbers in the same memory, and any other as it is."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class SharedArena:
    """The shared memory of one rank, in files of *folder*, for tensors that *has_values* finds to have values."""

    def __init__(self, folder: Path, has_values: Callable[[Tensor], bool] | None = None) -> None:
        self.folder = folder
        self._has_values = has_values
        self._segments: list[mmap.mmap] = []
        self._used_bytes = 0
        self._free: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def place(self, tensor: Tensor) -> ArenaPlace:
        """Reserve memory for a tensor like *tensor*, if that has values. Its dtype is one of DTYPES."""
        has_values = self._has_values is None or self._has_values(tensor)
        segment, offset = self._reserve(tensor.nbytes) if has_values else (NOWHERE, 0)
        return ArenaPlace(segment, offset, DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))

    def put(self, tensor: Tensor) -> ArenaPlace:
        """Copy *tensor*, if it has values, into the arena."""
        place = self.place(tensor)
        if place.segment != NOWHERE:
            self.view(place).copy_(tensor)
        return place

    def release(self, place: ArenaPlace) -> None:
        """Let the memory at *place* be used again."""
        if place.segment != NOWHERE:
            self._free[_rounded(bytes_of(place))].append((place.segment, place.offset))

    def view(self, place: ArenaPlace) -> Tensor:
        """Return the tensor at *place*, in the shared memory itself. Raise ValueError if it is not within the arena."""
        if place.segment == NOWHERE:
            return torch.empty(place.shape, dtype=DTYPES[place.dtype], device="meta")
        count = math.prod(place.shape)
        if not count:
            return torch.empty(place.shape, dtype=DTYPES[place.dtype])
        memory = self._segment(place.segment)
        if place.offset < 0 or place.offset + bytes_of(place) > len(memory):
            raise ValueError(f"{place} is outside of a segment of {len(memory)} bytes")
        flat = torch.frombuffer(memory, dtype=DTYPES[place.dtype], count=count, offset=place.offset)
        return flat.view(place.shape)

    def _reserve(self, size_bytes: int) -> tuple[int, int]:
        rounded = _rounded(size_bytes)
        if self._free[rounded]:
            return self._free[rounded].pop()
        if not self._segments or self._used_bytes + rounded > len(self._segments[-1]):
            self._add_segment(max(min(FIRST_BYTES << len(self._segments), SEGMENT_BYTES), rounded))
        offset = self._used_bytes
        self._used_bytes += rounded
        return len(self._segments) - 1, offset

    def _add_segment(self, size_bytes: int) -> None:
        try:
            with open(self._path(len(self._segments)), "x+b") as file:
                file.truncate(size_bytes)
                if hasattr(os, "posix_fallocate"):  # or else the first write into a full file system ends the process
                    os.posix_fallocate(file.fileno(), 0, size_bytes)
                self._segments.append(mmap.mmap(file.fileno(), size_bytes))
        except OSError as error:
            what = f"{error.strerror}: a rank needs {size_bytes:,} more bytes of shared memory"
            raise OSError(error.errno, what, str(self.folder)) from None
        self._used_bytes = 0

    def _segment(self, number: int) -> mmap.mmap:
        while number >= len(self._segments):
            with open(self._path(len(self._segments)), "r+b") as file:
                self._segments.append(mmap.mmap(file.fileno(), 0))
        return self._segments[number]

    def _path(self, number: int) -> Path:
        return self.folder / f"segment{number}"


def bytes_of(place: ArenaPlace) -> int:
    """Return the bytes of the tensor at *place*."""
    return math.prod(place.shape) * DTYPES[place.dtype].itemsize


def _rounded(size_bytes: int) -> int:
    """Round up to an eighth of a power of two: sizes are few then, and freed memory fits again."""
    size_bytes = max(size_bytes, ALIGNED_BYTES)
    step = max(ALIGNED_BYTES, 1 << max(0, size_bytes.bit_length() - 4))
    return -(-size_bytes // step) * step


def memory_folder() -> Path:
    """Make a private directory for an arena, in memory where the system has such a place; its name has this process."""
    shared = Path("/dev/shm")  # noqa: S108, a directory of its own is made there
    return Path(tempfile.mkdtemp(prefix=f"simcluster-{os.getpid()}-", dir=shared if shared.is_dir() else None))
