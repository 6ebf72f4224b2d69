"""The log files of a run's nodes: one for each, with all that it prints."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from simcluster.errors import RunError
from simcluster.inside import append_to


def log_file(path: str | Path) -> int:
    """Open the log file *path* for appending; neither it nor its folder may be a link. Raises OSError."""
    path = Path(path)
    return append_to(path.parent.parent, path.parent.name, path.name)


class Logs:
    """The files in *folder*; nothing is kept if there is none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._made: list[Path] = []  # folders, the innermost first

    def file(self, name: str) -> str | None:
        """Where what node *name* prints goes, if anywhere."""
        if self._folder is None:
            return None
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
        return str(self._folder.absolute() / f"{plain}.log")

    def make(self) -> None:
        """Makes the folder. Raises RunError."""
        if self._folder is None or self._folder.is_dir():
            return
        try:
            self._made = [place for place in (self._folder, *self._folder.parents) if not place.exists()]
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the log folder {self._folder}: {error.strerror}") from None

    def append(self, name: str, line: str) -> None:
        """Adds *line* to the file of node *name*; a disk that is full loses it."""
        file = self.file(name)
        if file is not None:
            with (
                contextlib.suppress(OSError),
                os.fdopen(log_file(file), "a", encoding="utf-8", errors="replace") as log,
            ):
                log.write(f"{line}\n")

    def forget(self) -> None:
        """Removes the files that nobody has written into, and the folders made for them if nothing is left in those."""
        with contextlib.suppress(OSError):
            for file in self._made[0].iterdir() if self._made else ():
                if not file.stat().st_size:
                    file.unlink()
            for folder in self._made:
                folder.rmdir()  # fails where something is in it, and then stays
