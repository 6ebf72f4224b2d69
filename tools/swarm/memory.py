"""Where the folders of the swarm's runs are: in memory, if the machine has such a place."""

from __future__ import annotations

import os
from pathlib import Path


def in_memory() -> str | None:
    """A folder whose files cost no disk, or None: the disk is not what is tried here."""
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None
