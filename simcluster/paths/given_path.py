"""The path that a user gives for output: one reading of it for every command and function."""

from __future__ import annotations

import os
from pathlib import Path

from simcluster.errors import Problem, UsageError

NAME_BYTES = 255
PATH_BYTES = 4_095 - 160
"""The longest name and path that Linux has; below a run folder names need up to 160 bytes more."""


def given_path(given: str | os.PathLike[str], key: str = "out") -> Path:
    """Return *given* with a leading `~` expanded. Raises UsageError for a path that no file can have."""
    text = os.fspath(given)
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise UsageError(Problem(key, repr(text), "a home folder that exists after ~")) from None
    if "\0" in text:
        raise UsageError(Problem(key, repr(text[:80]), "a path without a null character"))
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest > NAME_BYTES:
        raise UsageError(Problem(key, f"a name of {longest} bytes", f"names of at most {NAME_BYTES} bytes"))
    length = len(os.fsencode(path.absolute()))
    if length > PATH_BYTES:
        raise UsageError(Problem(key, f"a path of {length} bytes", f"at most {PATH_BYTES} bytes"))
    return path
