"""Check the path that a user passes for output, in the same way for every command and function."""

from __future__ import annotations

import os
from pathlib import Path

from simcluster.errors import UsageError

NAME_BYTES = 255
"""The longest file name on Linux."""

PATH_BYTES = 4_095 - 160
"""The longest path on Linux, less the 160 bytes that names below a run folder may need."""


def given_path(given: str | os.PathLike[str], key: str = "out") -> Path:
    """Return *given* with a leading `~` expanded.

    Raise UsageError, about *key*, if no file can have this path or if the home directory is
    unknown.
    """
    text = os.fspath(given)
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise UsageError(key, repr(text), "a home folder that exists after ~") from None
    if "\0" in text:
        raise UsageError(key, repr(text[:80]), "a path without a null character")
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest > NAME_BYTES:
        raise UsageError(key, f"a name of {longest} bytes", f"names of at most {NAME_BYTES} bytes")
    length = len(os.fsencode(path.absolute()))
    if length > PATH_BYTES:
        raise UsageError(key, f"a path of {length} bytes", f"at most {PATH_BYTES} bytes")
    return path
