"""Python's garbage collector, set to run rarely during a simulation."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = (100_000, 50, 50)
"""Messages and flows form no cycles, and searching many young objects for them costs a third of the time."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Raise the thresholds, and restore them afterwards."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
