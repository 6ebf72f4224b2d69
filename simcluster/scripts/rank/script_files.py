"""The working directory of a script, which reads files where it was started but writes them to the
run's folder.

The script works in a copy of the directory tree in which it was started. The copy consists of
links, which are followed for reading. Before the script writes, a linked directory is replaced by a
real one, and a linked file by a copy.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from simcluster.scripts.rank.replacements import around

MOST_LINKS = 20_000
_WRITES = frozenset("wax+")


class ScriptFiles:
    """The tree of links below *top* for a script that was started in *origin*.

    All ranks on a machine share the tree. Copies are renamed into place, so other ranks see only
    complete ones.
    """

    def __init__(self, top: Path, origin: Path) -> None:
        self._top = top
        self.folder = top / origin.relative_to(origin.anchor)
        self._linked = 0
        self._busy = threading.local()
        # Make this directory first, so that none of its parents is ever a link.
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(top):
            for real in (*reversed(origin.parents), origin):
                self._expand(real, top / real.relative_to(origin.anchor))

    def prepare(self, path: Any) -> None:
        """Before *path* is written, replace links among its directories, and a linked file, by
        copies.
        """
        if getattr(self._busy, "is_busy", False) or not isinstance(path, (str, os.PathLike)):
            return
        # The functions called below are themselves replaced, and would call this method again.
        self._busy.is_busy = True
        try:
            self._make_real(path)
        finally:
            self._busy.is_busy = False

    def _make_real(self, path: str | os.PathLike[str]) -> None:
        whole = Path(os.path.abspath(os.fspath(path)))
        if not whole.is_relative_to(self._top):
            return
        folders = [one for one in reversed(whole.parents) if one.is_relative_to(self._top)]
        if all(map(_is_real_folder, folders)) and not whole.is_symlink():
            return
        with _locked(self._top):
            for place in folders:
                if place.is_symlink() and place.is_dir():
                    self._replace(place)
            if whole.is_symlink():
                self._replace(whole)

    def _replace(self, link: Path) -> None:
        """Replace *link* by a copy.

        The copy of a directory has links to everything in the directory.
        """
        real, made = link.resolve(), self._top.with_name(f".{self._top.name}-new")
        if real.is_dir():
            self._expand(real, made)
            link.unlink()
            made.rename(link)
        elif real.is_file():
            made.write_bytes(real.read_bytes())  # copy the content: the script may append to it
            made.replace(link)
        else:
            link.unlink()

    def _expand(self, real: Path, place: Path) -> None:
        """Make the directory *place*, with links to everything in *real*."""
        place.mkdir(exist_ok=True)
        for entry in os.scandir(real):
            link = place / entry.name
            if self._linked < MOST_LINKS and not os.path.lexists(link):
                self._linked += 1
                link.symlink_to(entry.path)


def _is_real_folder(place: Path) -> bool:
    """Return whether *place* is a directory and no link, by one look: another rank may be replacing it."""
    try:
        return stat.S_ISDIR(place.lstat().st_mode)
    except OSError:
        return False


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on *folder* within the block, which only one process or thread at a time can
    enter.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def install_files(files: ScriptFiles) -> None:
    """Change to the working directory in *files*, and make Python's functions that write files call
    `prepare` first.
    """
    os.chdir(files.folder)

    @around(builtins, "open")
    def open_(real: Any, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        if not _WRITES.isdisjoint(mode):
            files.prepare(file)
        return real(file, mode, *args, **more)

    io.open = builtins.open

    @around(os, "mkdir", "remove", "unlink", "rmdir", "rename", "replace", "truncate", "utime", "chmod")
    def change(real: Any, path: Any, *args: Any, **more: Any) -> Any:
        if not more.get("dir_fd"):
            files.prepare(path)
            if args and isinstance(args[0], (str, os.PathLike)):  # the target of a rename
                files.prepare(args[0])
        return real(path, *args, **more)

    @around(os, "open")
    def open_low(real: Any, path: Any, flags: int, *args: Any, **more: Any) -> Any:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            files.prepare(path)
        return real(path, flags, *args, **more)

    @around(shutil, "rmtree")
    def rmtree(real: Any, path: Any, *args: Any, **more: Any) -> None:
        if isinstance(path, (str, os.PathLike)):
            files.prepare(os.path.join(path, "_"))  # make the directory real: rmtree refuses a link
        real(path, *args, **more)

    @around(torch, "save")
    def save(real: Any, obj: Any, f: Any, *args: Any, **more: Any) -> None:
        files.prepare(f)
        real(obj, f, *args, **more)


def remove_links(top: Path) -> None:
    """Remove all links and empty directories below *top*, so that only files written by the script
    are left.
    """
    for folder, folders, files in os.walk(top, topdown=False):
        for name in (*files, *folders):
            path = os.path.join(folder, name)
            with suppress(OSError):  # a directory with files cannot be removed, and stays
                os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    with suppress(OSError):
        top.rmdir()
