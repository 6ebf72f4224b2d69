"""The link NAME to the last of several runs, which are directories NAME-... next to it.

It is the only symbolic link that the library resolves; others may be in paths of the user.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from simcluster.paths.inside import PARTIAL


def last_run(path: str | os.PathLike[str]) -> Path:
    """Return the directory of the last run if *path* is a link to it, else *path*."""
    path = Path(path)
    try:
        target = os.readlink(path)
    except OSError:
        return path
    return path.with_name(target) if target.startswith(f"{path.name}-") and "/" not in target else path


def each_once(paths: Sequence[Path]) -> list[Path]:
    """Return `last_run` of each of *paths*, such as runs/*, and leave out links to other paths in
    *paths*.
    """
    return [found for path in paths if (found := last_run(path)) == path or found not in paths]


def lead(link: Path, folder: Path) -> bool:
    """Make *link* a symbolic link to *folder*, which is next to it. Return whether that succeeded.

    It fails if something else has the name *link*, or if links cannot be made there.
    """
    if os.path.lexists(link) and last_run(link) == link:
        return False
    partial = link.with_name(PARTIAL + folder.name)
    try:
        os.symlink(folder.name, partial)
        os.replace(partial, link)
    except OSError:
        with suppress(OSError):
            os.unlink(partial)
        return False
    return True
