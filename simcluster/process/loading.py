"""Importing torch, which makes half a million objects that all stay."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_loads() -> Iterator[None]:
    """Import torch in this block without looking for garbage, neither meanwhile nor later among what it has made.

    Looking takes a third of the time of the import, and as long again when the process ends. Nothing changes in a
    process that has torch already, or looks for no garbage.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
