"""Import torch and its compiler without garbage collection: they create half a million objects, all
of which stay.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


def torch_loads() -> AbstractContextManager[None]:
    """Return a context for importing torch, without garbage collection.

    At its end, all objects are excluded from later collections, so use it only in a process that
    simcluster owns. Collection takes more than a quarter of the CPU time of a process that only
    imports torch, most of it at exit.
    """
    return _loads("torch", stays=True)


def compiler_loads() -> AbstractContextManager[None]:
    """Return a context in which torch imports its compiler, without garbage collection.

    If this process has used `torch_loads`, the new objects are excluded from later collections as
    well.
    """
    return _loads("torch._dynamo", stays=gc.get_freeze_count() > 0)


@contextmanager
def _loads(module: str, *, stays: bool) -> Iterator[None]:
    if module in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if stays:
            gc.freeze()
