"""Python's garbage collector, told to look rarely while a simulation runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

RARELY = (100_000, 50, 50)
"""Messages and flows make no cycles, and looking for them among so many young objects costs a third of the time."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Raises the thresholds; puts them back as they were."""
    before = gc.get_threshold()
    gc.set_threshold(*RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
