"""Files that a command writes for its user: whole or not at all, and a sentence if they cannot be.

This file knows paths and how the operating system refuses them. It must not know what is written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from simcluster.errors import Problem, UsageError


def check_target(target: Path) -> None:
    """Raises UsageError if *target* cannot be written, before any work is done for it."""
    folder = target.absolute().parent
    if not folder.is_dir():
        raise UsageError(Problem("--out", str(target), f"a file in a folder that exists, not in {folder}"))
    if target.is_dir():
        raise UsageError(Problem("--out", f"the folder {target}", "a file"))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(Problem("--out", str(target), f"a file in a folder that can be written, not in {folder}"))


def write_file(target: Path, text: str) -> None:
    """Writes *text* as *target*, which stays as it was if that fails. Raises UsageError then."""
    beside = target.with_name(f".partial-{target.name}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise UsageError(Problem("--out", str(target), f"a file that can be written ({error.strerror})")) from None
