"""Open the files of a model's folder, which may be in the cache of Hugging Face's hub.

A folder of that cache is `models--ORG--NAME/snapshots/REVISION`. Its files are links to
`../../blobs/HASH`. These links are followed, and no others.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO, Final

from simcluster.paths.inside import open_file

REPOSITORY: Final = "models--"
"""The prefix of a model's directory in the cache."""

_BLOB: Final = re.compile(r"\.\./\.\./blobs/([0-9A-Za-z][\w-]{0,127})")


def open_model_file(folder: Path, name: str) -> BinaryIO:
    """Open the regular file *name* of *folder* for reading. Raise OSError if it cannot be opened.

    If *folder* is a snapshot, *name* may be a link to a regular file in the blobs next to it. Any
    other link is refused with OSError.
    """
    try:
        target = os.readlink(folder / name)
    except OSError:
        return open_file(folder, name)
    blob = _BLOB.fullmatch(target)
    if blob is None or folder.resolve().parent.name != "snapshots":
        return open_file(folder, name)  # raises: a link is not followed
    return open_file(folder / ".." / "..", "blobs", blob[1])


def folder_title(folder: Path) -> str:
    """Return the name of the model in *folder*; for a snapshot, the name of its repository."""
    real = folder.resolve()
    repository = real.parent.parent.name
    if real.parent.name == "snapshots" and repository.startswith(REPOSITORY):
        return repository.rpartition("--")[2]
    return real.name
