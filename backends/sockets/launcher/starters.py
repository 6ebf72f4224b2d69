"""Starts the nodes of one run that nobody starts by hand, wherever they are to be: here, or by ssh on other machines.

This file knows members and who starts which. It must not know what a run is waiting for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from backends.sockets.launcher.logs import Logs
from backends.sockets.launcher.member import Member
from backends.sockets.launcher.orders import ORDER_LIMIT_BYTES, Order, Place
from backends.sockets.launcher.processes import Processes
from backends.sockets.launcher.remote import Remotes
from backends.sockets.launcher.reporting import host_of
from backends.sockets.launcher.settings import Options
from backends.sockets.launcher.tmux import Panes
from backends.sockets.net.addresses import parse_endpoint, show_endpoint
from backends.sockets.net.reachable_address import meeting_host
from backends.sockets.net.ssh import Ssh
from backends.sockets.net.tls import files_for
from simcluster.errors import Problem, UsageError
from simcluster.experiment.job import ClusterJob


class Starters:
    """Made inside the run's loop."""

    def __init__(
        self, job: ClusterJob, options: Options, key: bytes, on_exit: Callable[[Member, int | None], None]
    ) -> None:
        self._job, self._key, self._coordinator = job, key, options.coordinator
        self.logs = Logs(job.log_folder)
        self._ssh = Ssh(options.ssh_config, tuple(options.ssh_options))
        self._here = Processes(on_exit, self.logs)
        self._there = Remotes(self._ssh, on_exit, self.logs, job.on_output)
        self._files = _contents(job)
        self._tls = Path(options.tls).absolute() if options.tls is not None else None
        self._wants_panes, self._panes = options.tmux, Panes({})

    async def host(self) -> str | None:
        """Where nodes elsewhere reach the launcher; None if there are none. Raises UsageError."""
        remotes = [remote for remote in self._job.remotes if remote is not None]
        if remotes:
            return await meeting_host(remotes, self._ssh)
        return host_of(self._coordinator) if self._coordinator is not None and any(self._job.addresses) else None

    async def start(self, members: Sequence[Member], host: str, port: int) -> None:
        """Starts *members* and tells them that the launcher is at *host*:*port*. Raises RunError."""
        rendezvous = show_endpoint(host, port)
        self.logs.make()
        if self._wants_panes:
            await self._show(members)
        await self.start_again(members, rendezvous)

    async def start_again(self, members: Sequence[Member], rendezvous: str) -> None:
        """Starts *members*, whose processes are gone or never were there. Raises RunError."""

        def order(group: Sequence[Member], places: list[Place]) -> Order:
            return Order(rendezvous, self._key.hex(), places, self._files, self._secrets(group))

        await self._there.start([member for member in members if member.remote is not None], order)
        await self._here.start(
            [member for member in members if member.remote is None and not member.by_hand],
            rendezvous=rendezvous,
            listen=show_endpoint(parse_endpoint(rendezvous, "rendezvous")[0], 0),
            key=self._key,
            program=self._job.program,
            tls=str(self._tls) if self._tls is not None else None,
        )

    def _secrets(self, group: Sequence[Member]) -> dict[str, bytes]:
        """The certificates of *group*, and what the others' are to be checked by."""
        if self._tls is None:
            return {}
        files = [path for member in group for path in files_for(self._tls, member.name)]
        return {path.name: path.read_bytes() for path in dict.fromkeys(files)}

    async def _show(self, members: Sequence[Member]) -> None:
        files = {member.name: self.logs.file(member.name) for member in members if not member.by_hand}
        self._panes = Panes({name: file for name, file in files.items() if file is not None})
        await self._panes.open()
        if self._job.on_output is not None:
            self._job.on_output("launcher", f"all nodes in tmux attach -t {self._panes.session}")

    def kill(self, member: Member) -> None:
        self._here.kill(member)
        self._there.kill(member)

    def pause(self, member: Member, paused: bool) -> None:
        """Stops the process of *member*, heartbeats and all, or lets it go on."""
        self._here.pause(member, paused)
        self._there.pause(member, paused)

    def abandon(self) -> None:
        """From now on no process is started."""
        self._here.abandon()

    async def close(self) -> None:
        """Nothing is left on other machines, as far as this one can see to it."""
        await self._there.close()
        await self._panes.close()


def _contents(job: ClusterJob) -> dict[str, bytes]:
    """Own code by path. Raises UsageError if it cannot be read, or is more than code can be."""
    contents: dict[str, bytes] = {}
    for path in job.files:
        try:
            contents[str(path)] = path.read_bytes()
        except OSError as error:
            raise UsageError(Problem("own code", f"{path} ({error.strerror})", "a file that can be read")) from None
    size_bytes = sum(map(len, contents.values()))
    if size_bytes > ORDER_LIMIT_BYTES // 2:
        raise UsageError(Problem("own code", f"{size_bytes} bytes", f"at most {ORDER_LIMIT_BYTES // 2} to be sent"))
    return contents
