"""Bytes that are on the disk, whole, or not there at all: a file beside, fsync, rename, fsync of the folder.

This file knows files. It must not know what is in them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

PARTIAL = ".partial"
"""Ends the names of files that are not whole yet."""


def write_whole(path: Path, content: bytes) -> None:
    """*content* at *path*. Raises OSError, with nothing left behind; what was at *path* is then as before.

    Of a power cut `sync_folder` is still to be asked: until then the name, not the content, may be forgotten.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(number, rest) :]
            os.fsync(number)
        finally:
            os.close(number)
        os.replace(partial, path)
    except OSError:
        remove(partial)
        raise


def sync_folder(folder: Path) -> None:
    """The names in *folder* are on the disk as well."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def remove(path: Path) -> None:
    """Takes *path* away, if it is there and that can be done."""
    with suppress(OSError):
        os.unlink(path)
