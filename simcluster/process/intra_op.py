"""Run each kernel with one thread, so that no bit of a result depends on the number of cores.

OpenMP and MKL keep the number of intra-op threads per thread, and a new thread begins with the
number of cores. torch sets its own number only when the thread first asks torch for it, and a
matrix product does not ask. So every thread that computes must call one of these functions before
its first kernel.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_open = 0
"""The number of `one_thread` contexts that are entered, in all threads."""

_process_count = 0
"""The number of intra-op threads of this process before the first of these contexts."""


class _ThreadCounts(threading.local):
    depth = 0


_here = _ThreadCounts()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_one_thread() -> None:
    """Compute with one intra-op thread in the calling thread from now on."""
    use_threads(1)


def use_threads(count: int) -> None:
    """Compute with *count* intra-op threads in the calling thread from now on."""
    import torch

    # torch copies the process-wide number into this thread at the first get_num_threads(). Call it
    # first, or it would later overwrite the number below.
    torch.get_num_threads()
    torch.set_num_threads(count)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one intra-op thread in the calling thread, and restore the number at the end.

    These contexts may be nested.
    """
    import torch

    global _open, _process_count
    with _lock:
        before = torch.get_num_threads()
        if not _open:
            _process_count = before
        elif not _here.depth:
            # This thread may have begun with the 1 that another thread's context has set
            # process-wide.
            before = _process_count
        _open += 1
        _here.depth += 1
        use_one_thread()
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            _here.depth -= 1
            torch.set_num_threads(before)
