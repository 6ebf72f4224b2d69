"""The nodes of one run that this machine starts itself.

This file knows the fork server and log files. It must not know what a run is waiting for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from functools import partial

from backends.sockets.launcher.fork_server import ForkServer, Start, fork_server
from backends.sockets.launcher.logs import Logs
from backends.sockets.launcher.member import Member


class Processes:
    """Starts members of a run, says when one exits, and kills them. Made inside the run's loop."""

    def __init__(self, on_exit: Callable[[Member, int | None], None], logs: Logs) -> None:
        self._on_exit, self._logs = on_exit, logs
        self._loop = asyncio.get_running_loop()
        self._server: ForkServer | None = None
        self._abandoned = False
        self._starts: list[tuple[Member, Start]] = []

    async def start(
        self, members: list[Member], rendezvous: str, listen: str, key: bytes, program: str, tls: str | None = None
    ) -> None:
        """Forks a node for each of *members*. Raises RunError if there is nobody to fork it."""
        if not members:
            return
        self._server = fork_server()
        module, starts = program.partition(":")[0], []
        for member in members:
            member.exited = False
            start = self._server.spawn(
                partial(self._call, self._exited, member),
                name=member.name,
                rendezvous=rendezvous,
                listen=listen,
                key=key.hex(),
                tls=tls,
                log_file=self._logs.file(member.name),
                preload=module if module.startswith("simcluster.") else "",
            )
            start.add_done_callback(partial(self._started, member))
            self._starts.append((member, start))
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
        """From now on no process is started; one that is only just being started is killed as soon as it is there."""
        self._abandoned = True
        for member, start in self._starts:
            if not start.done() and self._server is not None:
                self._server.forget(start)
                member.exited = True

    def _started(self, member: Member, start: concurrent.futures.Future[int]) -> None:
        """Called in the fork server's thread."""
        if start.exception() is not None:
            member.exited = True
            return
        member.pid = start.result()
        if self._abandoned and self._server is not None:
            self._server.kill(member.pid)

    def _call(self, action: Callable[[Member, int | None], None], member: Member, code: int | None) -> None:
        with contextlib.suppress(RuntimeError):  # the run's loop has ended, and nobody asks any more
            self._loop.call_soon_threadsafe(action, member, code)

    def _exited(self, member: Member, code: int | None) -> None:
        member.exited = True
        self._on_exit(member, code)
