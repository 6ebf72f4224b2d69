"""One log file per node, with all its output, and tmux panes that show the files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from simcluster.errors import LaunchFailed, RunError
from simcluster.paths.inside import append_to


def log_file(path: str | Path) -> int:
    """Open the log file *path* for appending and return its descriptor.

    Raise OSError if that fails, or if the file or its directory is a symbolic link.
    """
    path = Path(path)
    return append_to(path.parent.parent, path.parent.name, path.name)


class Logs:
    """The log files in *folder*; if that is None, no logs are kept."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._made: list[Path] = []  # directories, the innermost first

    def file(self, name: str) -> str | None:
        """Return the path of node *name*'s log file, or None if no logs are kept."""
        if self._folder is None:
            return None
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
        return str(self._folder.absolute() / f"{plain}.log")

    def make(self) -> None:
        """Create the directory of the logs if it is missing. Raise RunError if that fails."""
        if self._folder is None or self._folder.is_dir():
            return
        try:
            self._made = [place for place in (self._folder, *self._folder.parents) if not place.exists()]
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make the log directory {self._folder}: {error.strerror}") from None

    def append(self, name: str, line: str) -> None:
        """Append *line* to the file of node *name*. The line is lost if the disk is full."""
        file = self.file(name)
        if file is not None:
            with contextlib.suppress(OSError), open(log_file(file), "a", encoding="utf-8", errors="replace") as log:
                log.write(f"{line}\n")

    def forget(self) -> None:
        """Remove empty files, and then the directories that `make` has made if they are empty."""
        with contextlib.suppress(OSError):
            for file in self._made[0].iterdir() if self._made else ():
                if not file.stat().st_size:
                    file.unlink()
            for folder in self._made:
                folder.rmdir()  # fails if it is not empty, and then stays


TMUX = "tmux"
# A shell script that follows the file "$1" while the process "$2" lives.
FOLLOW = 'tail -n +1 -F -- "$1" & while kill -0 "$2" 2>/dev/null; do sleep 1; done; kill $!'


class Panes:
    """The tmux panes that show *files*, node name -> path of its log, until `close`."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.session = f"simcluster-{os.getpid()}"
        self._files = files
        self._open = False

    async def open(self) -> None:
        """Open the panes. Raise LaunchFailed if tmux fails."""
        for number, (name, file) in enumerate(self._files.items()):
            os.close(log_file(file))  # create the file: tail needs it
            follow = ["sh", "-c", FOLLOW, "sh", file, str(os.getpid())]
            if not number:
                await self._do("new-session", "-d", "-s", self.session, "-x", "200", "-y", "60", *follow)
                self._open = True
                await self._do("set-option", "-t", self.session, "pane-border-status", "top")
                await self._do("set-option", "-t", self.session, "pane-border-format", " #{pane_title} ")
            else:
                await self._do("split-window", "-t", self.session, *follow)
            await self._do("select-pane", "-t", self.session, "-T", name)
            await self._do("select-layout", "-t", self.session, "tiled")

    async def close(self) -> None:
        if self._open:
            self._open = False
            await self._run(("kill-session", "-t", self.session))

    async def _do(self, *words: str) -> None:
        code, said = await self._run(words)
        if code:
            raise LaunchFailed("no panes can be shown", [f"tmux {words[0]} ended with exit code {code}: {said}"])

    async def _run(self, words: Sequence[str]) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            TMUX, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
        return process.returncode or 0, said.decode(errors="replace").strip()
