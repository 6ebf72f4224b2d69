"""The nodes of one run that this machine starts itself.

This file knows the fork server and log files. It must not know what a run is waiting for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from backends.sockets.forkserver import ForkServer, fork_server
from backends.sockets.member import Member
from simcluster.errors import RunError


class Processes:
    """Starts members of a run, says when one exits, and kills them. Made inside the run's loop."""

    def __init__(self, on_exit: Callable[[Member, int], None], log_folder: Path | None) -> None:
        self._on_exit, self._log_folder = on_exit, log_folder
        self._loop = asyncio.get_running_loop()
        self._server: ForkServer | None = None
        self._abandoned = False

    def log_file(self, member: Member) -> str | None:
        """Where what *member* prints goes, if anywhere."""
        if self._log_folder is None:
            return None
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", member.name)
        return str(self._log_folder.absolute() / f"{plain}.log")

    async def start(self, members: list[Member], rendezvous: str, listen: str, key: bytes, program: str) -> None:
        """Forks a node for each of *members*. Raises RunError if there is nobody to fork it."""
        if not members:
            return
        if self._log_folder is not None:
            try:
                self._log_folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunError(f"cannot make the log folder {self._log_folder}: {error.strerror}") from None
        self._server = fork_server()
        module = program.partition(":")[0]
        starts = []
        for member in members:
            member.exited = False
            start = self._server.spawn(
                partial(self._call, self._exited, member),
                name=member.name,
                rendezvous=rendezvous,
                listen=listen,
                key=key.hex(),
                log_file=self.log_file(member),
                preload=module if module.startswith("simcluster.") else "",
            )
            start.add_done_callback(partial(self._started, member))
            starts.append(asyncio.wrap_future(start))
        await asyncio.gather(*starts)

    def kill(self, member: Member) -> None:
        if self._server is not None and member.pid is not None and not member.exited:
            self._server.kill(member.pid)

    def pause(self, member: Member, paused: bool) -> None:
        """Stops the process of *member*, heartbeats and all, or lets it go on."""
        if self._server is not None and member.pid is not None and not member.exited:
            self._server.pause(member.pid, paused)

    def abandon(self) -> None:
        """From now on a process that is only just being started is killed as soon as it is there."""
        self._abandoned = True

    def _started(self, member: Member, start: concurrent.futures.Future[int]) -> None:
        """Called in the fork server's thread."""
        if start.cancelled() or start.exception() is not None:
            member.exited = True
            return
        member.pid = start.result()
        if self._abandoned:
            self.kill(member)

    def _call(self, action: Callable[[Member, int], None], member: Member, code: int) -> None:
        with contextlib.suppress(RuntimeError):  # the run's loop has ended, and nobody asks any more
            self._loop.call_soon_threadsafe(action, member, code)

    def _exited(self, member: Member, code: int) -> None:
        member.exited = True
        self._on_exit(member, code)
