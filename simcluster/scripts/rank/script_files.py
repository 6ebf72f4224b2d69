"""The working directory of a script: what it reads is where it was started, what it writes goes to the run folder.

The script works in a copy of the tree around its directory that is made of links, which all that reads follows. What
writes first puts a real directory in the place of a linked one, and takes away a linked file.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
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
    """The tree below *top* that stands for the one of *origin*, the directory that the script is started in.

    The ranks of a machine share it. What one of them replaces is complete when the others see it.
    """

    def __init__(self, top: Path, origin: Path) -> None:
        self._top = top
        self.folder = top / origin.relative_to(origin.anchor)
        self._linked = 0
        self._busy = threading.local()
        self.folder.mkdir(parents=True, exist_ok=True)  # first: no link on the way to it is ever replaced
        with _locked(top):
            for real in (*reversed(origin.parents), origin):
                self._expand(real, top / real.relative_to(origin.anchor))

    def prepare(self, path: Any) -> None:
        """Make the directories of *path* real, and take a linked file away, as it is about to be written."""
        if getattr(self._busy, "is_busy", False) or not isinstance(path, (str, os.PathLike)):
            return
        self._busy.is_busy = True  # what it calls is watched, too
        try:
            self._make_real(path)
        finally:
            self._busy.is_busy = False

    def _make_real(self, path: str | os.PathLike[str]) -> None:
        whole = Path(os.path.abspath(os.fspath(path)))
        if not whole.is_relative_to(self._top):
            return
        folders = [one for one in reversed(whole.parents) if one.is_relative_to(self._top)]
        if all(place.is_dir() and not place.is_symlink() for place in folders) and not whole.is_symlink():
            return
        with _locked(self._top):
            for place in folders:
                if place.is_symlink() and place.is_dir():
                    self._replace(place)
            if whole.is_symlink():
                self._replace(whole)

    def _replace(self, link: Path) -> None:
        """Put a copy in the place of *link*: of a directory, links to all in it."""
        real, made = link.resolve(), self._top.with_name(f".{self._top.name}-new")
        if real.is_dir():
            self._expand(real, made)
            link.unlink()
            made.rename(link)
        elif real.is_file():
            made.write_bytes(real.read_bytes())  # it may be appended to
            made.replace(link)
        else:
            link.unlink()

    def _expand(self, real: Path, place: Path) -> None:
        """Make *place* a directory with links to everything in *real*."""
        place.mkdir(exist_ok=True)
        for entry in os.scandir(real):
            link = place / entry.name
            if self._linked < MOST_LINKS and not os.path.lexists(link):
                self._linked += 1
                link.symlink_to(entry.path)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process or thread at a time into this block for *folder*."""
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
    """Work in *files* from now on, and let everything of Python that writes prepare it first."""
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
            if args and isinstance(args[0], (str, os.PathLike)):  # the other one of a rename
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
            files.prepare(os.path.join(path, "_"))  # a real directory of links: it refuses a link
        real(path, *args, **more)

    @around(torch, "save")
    def save(real: Any, obj: Any, f: Any, *args: Any, **more: Any) -> None:
        files.prepare(f)
        real(obj, f, *args, **more)


def remove_links(top: Path) -> None:
    """Leave only files below *top* that a script has written, and their directories."""
    for folder, folders, files in os.walk(top, topdown=False):
        for name in (*files, *folders):
            path = os.path.join(folder, name)
            with suppress(OSError):  # a directory with files
                os.unlink(path) if os.path.islink(path) else os.rmdir(path)
    with suppress(OSError):
        top.rmdir()
