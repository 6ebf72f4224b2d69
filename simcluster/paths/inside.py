"""Access files in a directory that may come from elsewhere, without following symbolic links.

Every function takes the directory as the user named it, which may be a link, and names below it,
which may not be links. Each name is opened relative to the open directory before it, so a link that
appears in between is refused as well.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from simcluster.process.platforms import need_unix

PARTIAL = ".partial-"
"""The prefix of the names of files that are not complete yet."""

if sys.platform == "win32":
    _FOLDER = _NO_LINK = 0
    _PLAIN = os.O_BINARY | os.O_NOINHERIT
else:
    _FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    _NO_LINK = os.O_NOFOLLOW
    # O_NONBLOCK: to open a named pipe must not block; `_regular` then refuses it.
    _PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Content = bytes | Callable[[BinaryIO], object]
"""The bytes of a file, or a function that writes them."""


@contextmanager
def opened(folder: Path, *names: str, make: bool = False) -> Iterator[int]:
    """Open the directory *names* below *folder*; if *make*, create missing directories.

    Yield its descriptor.

    Raise OSError if that fails, and UsageError on Windows, which cannot open names relative to a
    directory.
    """
    need_unix("a run folder")
    if make:
        folder.mkdir(parents=True, exist_ok=True)
    number = os.open(folder, _FOLDER)
    try:
        for name in names:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=number)
            inner = _opened(name, _FOLDER | _NO_LINK, number)
            os.close(number)
            number = inner
        yield number
    finally:
        os.close(number)


def write_whole(folder: Path, *names: str, content: Content, durable: bool = True) -> None:
    """Write *content* to the file *names* below *folder*, completely or not at all; sync it to disk
    if *durable*.

    Raise OSError if that fails; the file is then as before, and no partial file is left.
    """
    with opened(folder, *names[:-1]) as place:
        stage(place, names[-1], content, durable)
        put(place, names[-1])


def stage(place: int, name: str, content: Content, durable: bool = True) -> None:
    """Write *content* to a partial file in the open directory *place*, for `put` to rename."""
    partial = PARTIAL + name
    remove_from(place, partial)
    try:
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN, 0o644, dir_fd=place)
        try:
            _write(number, content)
            if durable:
                os.fsync(number)
        finally:
            os.close(number)
    except BaseException:
        remove_from(place, partial)
        raise


def put(place: int, name: str, into: int | None = None) -> None:
    """Rename the staged file in *place* to *name*, there or in the open directory *into*."""
    try:
        os.replace(PARTIAL + name, name, src_dir_fd=place, dst_dir_fd=place if into is None else into)
    except OSError:
        remove_from(place, PARTIAL + name)
        raise


def remove_from(place: int, name: str) -> None:
    """Remove the file or link *name* from the open directory *place*; ignore failures."""
    with suppress(OSError):
        os.unlink(name, dir_fd=place)


def remove(folder: Path, *names: str) -> None:
    """Remove the file or link *names* below *folder*; ignore failures."""
    with suppress(OSError), opened(folder, *names[:-1]) as place:
        remove_from(place, names[-1])


def listed(folder: Path, *names: str) -> list[str]:
    """Return the sorted names in the directory *names* below *folder*; [] if it does not exist.

    Raise OSError if it is a link.
    """
    try:
        with opened(folder, *names) as place:
            return sorted(os.listdir(place))
    except FileNotFoundError:
        return []


def open_file(folder: Path, *names: str) -> BinaryIO:
    """Open the regular file *names* below *folder* for reading. Raise OSError if that fails."""
    return io.FileIO(_regular(folder, names, os.O_RDONLY), "rb")


def read(folder: Path, *names: str, most_bytes: int) -> bytes:
    """Return the content of the regular file *names* below *folder*.

    Raise OSError if it cannot be read or is larger than *most_bytes*.
    """
    with open_file(folder, *names) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes > most_bytes:
            raise OSError(errno.EFBIG, f"{size_bytes} bytes, more than {most_bytes}", names[-1])
        return file.read(size_bytes)


def append_to(folder: Path, *names: str) -> int:
    """Open the regular file *names* below *folder* for appending; return its descriptor.

    A missing file is created. Raise OSError if the file cannot be opened or is not a regular file.
    """
    return _regular(folder, names, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def links(folder: Path, *inner: Sequence[str]) -> list[Path]:
    """Return the symbolic links in *folder*, and in each existing directory of *inner* below."""
    found = []
    for names in ((), *inner):
        with suppress(FileNotFoundError, NotADirectoryError), opened(folder, *names) as place:
            found += [folder.joinpath(*names, name) for name in os.listdir(place) if _is_link(name, place)]
    return sorted(found)


def _opened(name: str, flags: int, place: int) -> int:
    try:
        return os.open(name, flags, 0o644, dir_fd=place)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, place):
            raise OSError(errno.ELOOP, "a symbolic link, which is not followed", name) from None
        raise


def _is_link(name: str, place: int) -> bool:
    with suppress(OSError):
        return stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
    return False


def _regular(folder: Path, names: Sequence[str], flags: int) -> int:
    with opened(folder, *names[:-1]) as place:
        number = _opened(names[-1], flags | _PLAIN, place)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return number
    os.close(number)
    raise OSError(errno.EINVAL, "no regular file", names[-1])


def _write(number: int, content: Content) -> None:
    if not isinstance(content, bytes):
        with io.BufferedWriter(io.FileIO(number, "wb", closefd=False)) as file:
            content(file)
        return
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(number, rest) :]
