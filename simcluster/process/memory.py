"""The memory of this machine and of this process, on every system."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path

import psutil

_M_MMAP_THRESHOLD = -3  # of malloc.h
_LARGE_BYTES = 2**20

_TRIMMED_BYTES = 2**25
"""Freed memory that is worth a search for what can be returned, which takes about 4 ms."""

_freed_bytes = 0


def memory_bytes() -> int:
    """Return the memory of this machine."""
    return int(psutil.virtual_memory().total)


def free_memory_bytes() -> int:
    """Return the memory that processes can still have before the system swaps."""
    return int(psutil.virtual_memory().available)


def peak_rss_bytes() -> int:
    """Return the peak memory of this process.

    On Linux it is read from this program's status, since `getrusage` would include the memory of the parent process.
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
    """Return the memory of this process now; None if the system does not tell."""
    with suppress(psutil.Error, OSError):
        return int(psutil.Process().memory_info().rss)
    return None


def return_freed_memory() -> None:
    """Have this process return large tensors to the system as soon as they are freed, at the cost of page faults.

    glibc would raise the size from which it does with each such tensor, and keep those below it. What it keeps now is
    returned as well.
    """
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
    _trim()


def note_freed(size_bytes: int) -> None:
    """Note that *size_bytes* in pieces have been freed; now and then, what glibc keeps of such is returned.

    It keeps pieces between others that are still in use, and seldom finds one that suits an aligned tensor.
    """
    global _freed_bytes
    _freed_bytes += size_bytes
    if _freed_bytes >= _TRIMMED_BYTES:
        _freed_bytes = 0
        _trim()


def _trim() -> None:
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
