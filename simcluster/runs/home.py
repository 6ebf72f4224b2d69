"""Choose the directory of a new run: `out`, or a new directory that replaces no other."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

from simcluster.errors import UsageError
from simcluster.paths.given_path import given_path
from simcluster.paths.last_run import last_run, lead
from simcluster.runs.destination import check_writable, default_name
from simcluster.runs.folder import CHECKPOINTS, LIVE, SOURCE, SUMMARY

log = logging.getLogger("simcluster.run")

MOST_CHANGED = 40
"""Limit on the characters that list the overrides in the name of a directory."""


class RunHome:
    """The directory of one run, as a context manager: *out*, or by default a new directory.

    The name of a new directory has the experiment, its overrides *changed*, and a number. A link
    with the same name, but without overrides and number, leads to the last run; see `default_name`.
    If nothing is written within the context, neither the directory nor the link remains.
    """

    def __init__(self, out: str | os.PathLike[str] | None, changed: Mapping[str, Any]) -> None:
        self._out, self._changed = out, changed
        self._folder: Path | None = None
        self._link: Path | None = None
        self._before: Path | None = None
        self._made_root = False

    def __call__(self, name: str, algorithm: str, backend: str, seed: int) -> Path:
        """Return the directory, which the first call makes.

        Raise UsageError if it cannot be made.
        """
        if self._folder is None:
            link = default_name(name, algorithm, backend, seed) if self._out is None else given_path(self._out)
            is_new = self._out is None or last_run(link) != link
            self._folder = self._made(link) if is_new else link
        return self._folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is None or self._link is None:
            return
        if any((self._folder / name).exists() for name in (SUMMARY, CHECKPOINTS)):
            # Set the link again: a run that began after this one may have moved it, and this one
            # ended last.
            lead(self._link, self._folder)
            return
        if last_run(self._link) == self._folder and not (self._before and lead(self._link, self._before)):
            self._link.unlink(missing_ok=True)
        with suppress(OSError):  # the parent stays if other runs are in it
            if not set(os.listdir(self._folder)) - {SOURCE}:
                shutil.rmtree(self._folder)
            if self._made_root:
                self._link.parent.rmdir()

    def _made(self, link: Path) -> Path:
        root = link.parent
        check_writable(root)
        changed = "-".join(map(_word, self._changed, self._changed.values()))[:MOST_CHANGED].strip("-._")
        try:
            self._made_root = not root.exists()
            root.mkdir(parents=True, exist_ok=True)
            _make_room(link)
            found = _numbered(root, f"{link.name}-{changed}" if changed else link.name)
        except OSError as error:
            why = f"{link} cannot be written: {error.strerror}; choose another out"
            raise UsageError("out", why, "") from None
        before = last_run(link)
        self._before = before if before != link and before.is_dir() else None
        self._link = link if lead(link, found) else None
        if self._link is None and os.path.lexists(link):
            log.warning("%s stays as it is, and does not lead to the last run: move it away", link)
        return found


def _word(key: str, value: object) -> str:
    """Return the override *key*=*value* as part of a file name, without a long value."""
    if isinstance(value, Mapping) and len(value) == 1:
        return _word(*next(iter(value.items())))
    said = str(value).replace(" ", "").rpartition("/")[2] if isinstance(value, (int, float, str, Path)) else ""
    text = f"{key.rpartition('.')[2]}_{said}".rstrip("_")
    return "".join(c if c.isalnum() or c in "._+" else "_" for c in text)


def _numbered(root: Path, stem: str) -> Path:
    """Make the directory *stem*-N in *root*, where N is the next number that no process has taken."""
    rests = [name[len(stem) + 1 :] for name in os.listdir(root) if name.startswith(f"{stem}-")]
    last = max((int(rest) for rest in rests if rest.isascii() and rest.isdecimal() and len(rest) < 10), default=0)
    for number in count(last + 1):
        with suppress(FileExistsError):
            os.mkdir(root / f"{stem}-{number}")
            return root / f"{stem}-{number}"
    raise AssertionError("a number that is free")


def _make_room(link: Path) -> None:
    """Rename the finished run at *link*, if it is a directory, to a name with a number.

    Earlier versions made a directory where a link to the last run is now.
    """
    if link.is_symlink() or not (link / SUMMARY).is_file() or (link / LIVE).exists():
        return
    moved = _numbered(link.parent, link.name)
    try:
        os.rename(link, moved)  # replaces the empty directory that `_numbered` made
    except OSError:  # another process has renamed it already
        moved.rmdir()
    else:
        log.warning("%s is now %s: its old name leads to the last run", link, moved)
