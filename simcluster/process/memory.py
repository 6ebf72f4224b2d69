"""The memory of this machine and of this process, on every system."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

import psutil

_M_MMAP_THRESHOLD = -3  # a constant of glibc's malloc.h
_LARGE_BYTES = 2**20

_TRIMMED_BYTES = 2**25
"""The amount of freed memory after which glibc returns memory; its search takes about 4 ms."""

_freed_bytes = 0
"""The amount of memory that has been freed since the last search."""


def memory_bytes() -> int:
    """Return the size of this machine's memory."""
    return int(psutil.virtual_memory().total)


def free_memory_bytes() -> int:
    """Return the amount of memory that processes can still allocate before the system swaps."""
    return int(psutil.virtual_memory().available)


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this process.

    On Linux it is read from /proc, since `getrusage` would include the memory of the parent process
    before exec.
    """
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    else:
        import resource

        with suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 2**10
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 2**10


def rss_bytes() -> int | None:
    """Return the resident memory of this process; None if the system does not provide it."""
    with suppress(psutil.Error, OSError):
        return int(psutil.Process().memory_info().rss)
    return None


def return_freed_memory() -> None:
    """Let glibc return the memory of large tensors to the system as soon as they are freed.

    By default, glibc raises its threshold with each large block that is freed, and keeps smaller
    ones. A fixed threshold costs page faults. Memory that glibc already keeps is returned as well.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _trim()


def note_freed(size_bytes: int) -> None:
    """Note that small pieces of *size_bytes* in all have been freed; return memory to the system
    whenever enough has been freed.

    glibc keeps free pieces between used ones, and they seldom fit a new, aligned tensor.
    """
    global _freed_bytes
    _freed_bytes += size_bytes
    if _freed_bytes >= _TRIMMED_BYTES:
        _freed_bytes = 0
        _trim()


def _trim() -> None:
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
