"""Reuse memory for large tensors, since mapping new memory takes longer than filling it.

A block is free again when the last tensor that uses it is gone. Free and used blocks together never
exceed the largest amount that was in use at once, so the pool does not raise the process's peak.
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
"""Smaller tensors come from torch's allocator, which reuses their memory itself."""

PAGE_BYTES = 2 * 1024**2
"""The size of a large page: blocks are multiples, so that the kernel can use large pages."""


def _new(size_bytes: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size_bytes)
    # The mapping is private: a forked process must not share the block.
    block = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with suppress(OSError):  # the kernel has no large pages
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


class Buffers:
    """A pool of blocks for tensors of at least *least_bytes*."""

    def __init__(self, least_bytes: int = LEAST_BYTES) -> None:
        self._least_bytes = least_bytes
        self._free: list[mmap.mmap] = []  # the most recently used last
        # Reentrant: a garbage collection while the lock is held may free a tensor, which gives its
        # block back.
        self._lock = threading.RLock()
        self._used_bytes = self._most_bytes = 0

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor on the CPU. Raise the errors of `torch.empty`."""
        size_bytes = math.prod(shape) * dtype.itemsize
        if size_bytes < self._least_bytes:
            return torch.empty(shape, dtype=dtype)
        block = self._take(-(-size_bytes // PAGE_BYTES) * PAGE_BYTES)
        content = np.frombuffer(block, np.uint8, count=size_bytes)
        # At exit, blocks need not be given back.
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
            # Prefer the most recently used block: the others are the first to return to the system.
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
        """Return free blocks to the system, the longest unused first, until the limit holds."""
        while self._free and self._used_bytes + sum(map(len, self._free)) > self._most_bytes:
            del self._free[0]


BUFFERS = Buffers()
"""The pool of this process."""
