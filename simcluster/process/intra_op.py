"""One thread for each kernel, so that no bit depends on how many cores a machine has.

OpenMP and MKL keep that number per thread; a new thread begins with the machine's. torch replaces it when the thread
first asks torch for the number, which a matrix product does not do. Hence every thread that computes calls one of these
functions before its first kernel.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_open = 0
_process_count = 0
"""The number for new threads of this process before the first of the *_open* contexts."""


class _ThreadCounts(threading.local):
    depth = 0


_here = _ThreadCounts()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_one_thread() -> None:
    """Compute with one intra-op thread in the calling thread from now on."""
    import torch

    # The first question applies the process's number to this thread. Asked later, it would undo what is set here.
    torch.get_num_threads()
    torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one intra-op thread in the calling thread; restore its number at the end. May be nested."""
    import torch

    global _open, _process_count
    with _lock:
        before = torch.get_num_threads()
        if not _open:
            _process_count = before
        elif not _here.depth:
            before = _process_count  # this thread may have begun with the number that another context has set
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
