"""What a part of `python -m tools.accelerators` works with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class PartContext(NamedTuple):
    """The kind of *device*, a *folder* for files that all parts share, and the *table* of results.

    *wheels* is the folder with packages, or None.
    """

    device: str
    folder: Path
    table: Path
    wheels: Path | None
