"""Files that a command writes for its user: whole or not at all, with a clear error."""

from __future__ import annotations

import os
from pathlib import Path

from simcluster.errors import Problem, UsageError
from simcluster.paths.given_path import given_path
from simcluster.paths.inside import write_whole


def check_target(given: Path) -> Path:
    """Return the path of *given*, or raise UsageError if it cannot be written. Call it before the work."""
    target = given_path(given, "--out")
    folder = target.absolute().parent
    if target.is_dir():
        raise UsageError(Problem("--out", f"the folder {target}", "a file"))
    if not folder.is_dir():
        why = f"no folder {folder}; choose a folder that exists"
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = f"{folder} is read-only; choose a folder that can be written"
    else:
        return target
    raise UsageError(Problem("--out", f"cannot write {target}: {why}", ""))


def write_file(target: Path, text: str) -> None:
    """Write *text* to *target*, or leave it unchanged and raise UsageError."""
    try:
        write_whole(target.parent, target.name, content=text.encode())
    except OSError as error:
        why = f"cannot write {target}: {error.strerror}; choose another --out"
        raise UsageError(Problem("--out", why, "")) from None
