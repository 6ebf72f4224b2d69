"""Memory for large tensors that is used again: memory that is new costs the system more than filling it does.

A block goes back when the last tensor that uses it is gone. Free blocks and those in use are together never more than
the most that were in use at once, so they do not raise a process's peak.
"""

from __future__ import annotations

import math
import mmap
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

LEAST_BYTES = 1024 * 1024
"""Smaller blocks come from the allocator, which keeps them."""
PAGE_BYTES = 2 * 1024**2
"""Blocks are multiples of a large page."""


def _new(size_bytes: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size_bytes)
    block = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a forked process gets a copy
    if sys.platform == "linux":
        with suppress(OSError):  # a kernel without large pages
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


class Buffers:
    """Blocks for tensors of at least *least_bytes*."""

    def __init__(self, least_bytes: int = LEAST_BYTES) -> None:
        self._least_bytes = least_bytes
        self._free: list[mmap.mmap] = []  # the last one was used last
        self._lock = threading.RLock()  # a tensor may go while this thread holds it
        self._used_bytes = self._most_bytes = 0

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return a tensor on the CPU with any content. Raise like `torch.empty`."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes < self._least_bytes:
            return torch.empty(shape, dtype=dtype)
        block = self._take(-(-size_bytes // PAGE_BYTES) * PAGE_BYTES)
        content = np.frombuffer(block, np.uint8, count=size_bytes)
        weakref.finalize(content, self._give_back, block).atexit = False
        return torch.from_numpy(content).view(dtype).view(torch.Size(shape))

    def clear(self) -> None:
        """Return the free blocks to the system."""
        with self._lock:
            self._free.clear()
            self._most_bytes = self._used_bytes

    def _take(self, size_bytes: int) -> mmap.mmap:
        with self._lock:
            self._used_bytes += size_bytes
            self._most_bytes = max(self._most_bytes, self._used_bytes)
            for index in range(len(self._free) - 1, -1, -1):
                if len(self._free[index]) == size_bytes:
                    return self._free.pop(index)
            self._trim()
        return _new(size_bytes)

    def _give_back(self, block: mmap.mmap) -> None:
        with self._lock:
            self._used_bytes -= len(block)
            self._free.append(block)
            self._trim()

    def _trim(self) -> None:
        """Return the blocks unused for longest, as long as there are too many."""
        while self._free and self._used_bytes + sum(map(len, self._free)) > self._most_bytes:
            del self._free[0]


BUFFERS = Buffers()
"""The process's."""
