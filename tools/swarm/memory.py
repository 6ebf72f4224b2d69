"""The directory for the swarm's runs, which is in memory if possible."""

from __future__ import annotations

import os
from pathlib import Path


def in_memory() -> str | None:
    """Return a directory in memory, or None if the machine has none.

    The swarm is faster without the disk, and does not test it.
    """
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None
