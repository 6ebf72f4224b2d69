"""A tmux session with a pane for each node of a run, which shows what that node prints."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence

from simcluster.errors import LaunchFailed, Problem
from simcluster_backends.sockets.launcher.logs import log_file

PROGRAM = "tmux"
# Follows the file "$1" for as long as the process "$2" lives.
FOLLOW = 'tail -n +1 -F -- "$1" & while kill -0 "$2" 2>/dev/null; do sleep 1; done; kill $!'


def missing() -> list[Problem]:
    """What is wrong with a wish for panes on this machine."""
    if shutil.which(PROGRAM) is not None:
        return []
    return [Problem("tmux", "no tmux on this machine", "tmux to be installed, or no --tmux")]


class Panes:
    """Shows *files*, log files by the name of the node, until `close`."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.session = f"simcluster-{os.getpid()}"
        self._files, self._open = files, False

    async def open(self) -> None:
        """Raises LaunchFailed if tmux will not."""
        for number, (name, file) in enumerate(self._files.items()):
            os.close(log_file(file))  # made, so that there is something to follow
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
        """Ends the session, if somebody has not done so already."""
        if self._open:
            self._open = False
            await self._run(("kill-session", "-t", self.session))

    async def _do(self, *words: str) -> None:
        code, said = await self._run(words)
        if code:
            raise LaunchFailed("no panes can be shown", [f"tmux {words[0]} ended with exit code {code}: {said}"])

    async def _run(self, words: Sequence[str]) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
        return process.returncode or 0, said.decode(errors="replace").strip()
