"""Importing torch, and the compiler in it, which make half a million objects that all stay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager


def torch_loads() -> AbstractContextManager[None]:
    """Import torch in this block, in a process of our own: it looks for no garbage meanwhile, nor ever among what is
    there at the end of the block.

    Looking takes more than a quarter of the CPU time of a process that only imports torch, most of it at the end.
    """
    return _loads("torch", stays=True)


def compiler_loads() -> AbstractContextManager[None]:
    """Make torch import its compiler in this block, without looking for garbage; as above if this process did so."""
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
