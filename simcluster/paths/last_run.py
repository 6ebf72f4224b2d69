"""The name that leads to the last of several runs: a link to a directory next to it, called by that name and more.

It is the only link that is looked into before a run's directory is opened; any other one is only where the user said.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from simcluster.paths.inside import PARTIAL


def last_run(path: str | os.PathLike[str]) -> Path:
    """Return the directory of the last run if *path* is a name that leads to it, else *path*."""
    path = Path(path)
    try:
        target = os.readlink(path)
    except OSError:
        return path
    return path.with_name(target) if target.startswith(f"{path.name}-") and "/" not in target else path


def each_once(paths: Sequence[Path]) -> list[Path]:
    """Return `last_run` of each of *paths*, such as runs/*, except those that lead to another one of them."""
    return [found for path in paths if (found := last_run(path)) == path or found not in paths]


def lead(link: Path, folder: Path) -> bool:
    """Let *link* lead to *folder*, next to it, and return True; False if something else has that name, or links cannot
    be made there.
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
