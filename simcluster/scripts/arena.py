"""Memory that a rank's process and its node program share.

It holds the tensors of calls, so that tensors need not be sent between the two processes. The
rank's process reserves memory. The node program only reads and writes the places that the rank's
process names, after it has checked their bounds.
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
"""The size of the first segment, and the largest size at which segments stop doubling. A larger
tensor still gets a segment of its size.
"""

NOWHERE = -1  # the segment of a tensor without values, which needs no memory
ALIGNED_BYTES = 64


def as_numbers(tensor: Tensor) -> Tensor:
    """Return a complex *tensor* as a real one with an additional dimension of size 2, in the same
    memory.

    Return any other tensor unchanged.
    """
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class SharedArena:
    """The memory that one rank shares with its node program, as files in *folder*.

    *has_values* returns whether a tensor has values; by default all tensors do.
    """

    def __init__(self, folder: Path, has_values: Callable[[Tensor], bool] | None = None) -> None:
        self.folder = folder
        self._has_values = has_values
        self._segments: list[mmap.mmap] = []
        self._used_bytes = 0
        self._free: dict[int, list[tuple[int, int]]] = defaultdict(list)

    def place(self, tensor: Tensor) -> ArenaPlace:
        """Reserve memory for a tensor like *tensor*, if it has values, and return its place.

        The dtype of the tensor must be one of DTYPES.
        """
        has_values = self._has_values is None or self._has_values(tensor)
        segment, offset = self._reserve(tensor.nbytes) if has_values else (NOWHERE, 0)
        return ArenaPlace(segment, offset, DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))

    def put(self, tensor: Tensor) -> ArenaPlace:
        """Copy *tensor* to the arena, if it has values, and return its place."""
        place = self.place(tensor)
        if place.segment != NOWHERE:
            self.view(place).copy_(tensor)
        return place

    def release(self, place: ArenaPlace) -> None:
        """Make the memory at *place* available for other tensors."""
        if place.segment != NOWHERE:
            self._free[_rounded(bytes_of(place))].append((place.segment, place.offset))

    def view(self, place: ArenaPlace) -> Tensor:
        """Return the tensor at *place* as a view of the shared memory.

        Raise ValueError if *place* exceeds its segment.
        """
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
                # Allocate the file now: a later write to a full file system would kill the process.
                if hasattr(os, "posix_fallocate"):
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
    """Return the size in bytes of the tensor at *place*."""
    return math.prod(place.shape) * DTYPES[place.dtype].itemsize


def _rounded(size_bytes: int) -> int:
    """Return *size_bytes* rounded up to a multiple of an eighth of a power of two.

    This limits the number of different sizes, so that freed memory fits later tensors.
    """
    size_bytes = max(size_bytes, ALIGNED_BYTES)
    step = max(ALIGNED_BYTES, 1 << max(0, size_bytes.bit_length() - 4))
    return -(-size_bytes // step) * step


def memory_folder() -> Path:
    """Make and return a private directory for an arena, in memory if the system has a file system
    there.

    The directory's name contains the id of this process.
    """
    shared = Path("/dev/shm")  # noqa: S108, a directory of its own is made there
    return Path(tempfile.mkdtemp(prefix=f"simcluster-{os.getpid()}-", dir=shared if shared.is_dir() else None))
