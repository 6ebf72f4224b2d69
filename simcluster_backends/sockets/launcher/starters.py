"""Start the nodes of a run that are not started by hand: here, or by ssh on other machines."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from simcluster.errors import Problem, UsageError
from simcluster.experiment.job import ClusterJob
from simcluster_backends.sockets.launcher.fork_server import ForkServer, Start, fork_server
from simcluster_backends.sockets.launcher.logs import Logs, Panes
from simcluster_backends.sockets.launcher.member import Member
from simcluster_backends.sockets.launcher.orders import ORDER_LIMIT_BYTES, Order, Place
from simcluster_backends.sockets.launcher.remote import Remotes
from simcluster_backends.sockets.launcher.reporting import host_of
from simcluster_backends.sockets.launcher.settings import Options
from simcluster_backends.sockets.net.addresses import meeting_host, parse_endpoint, show_endpoint
from simcluster_backends.sockets.net.ssh import Ssh
from simcluster_backends.sockets.net.tls import files_for


class Processes:
    """The processes on this machine: starts members, reports exits, kills members. Create it inside the run's loop."""

    def __init__(self, on_exit: Callable[[Member, int | None], None], logs: Logs) -> None:
        self._on_exit, self._logs = on_exit, logs
        self._loop = asyncio.get_running_loop()
        self._server: ForkServer | None = None
        self._abandoned = False
        self._starts: list[tuple[Member, Start]] = []

    async def start(
        self, members: list[Member], rendezvous: str, listen: str, key: bytes, program: str, tls: str | None = None
    ) -> None:
        """Fork a node for each of *members*. Raise RunError if the fork server is gone."""
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
        """Stop the process of *member*, heartbeats included, or resume it."""
        if self._server is not None and member.pid is not None and not member.exited:
            self._server.pause(member.pid, paused)

    def abandon(self) -> None:
        """Start no more processes; kill those whose start is in flight as soon as they exist."""
        self._abandoned = True
        for member, start in self._starts:
            if not start.done() and self._server is not None:
                self._server.forget(start)
                member.exited = True

    def _started(self, member: Member, start: concurrent.futures.Future[int]) -> None:
        """Note the process id; runs in the fork server's thread."""
        if start.exception() is not None:
            member.exited = True
            return
        member.pid = start.result()
        if self._abandoned and self._server is not None:
            self._server.kill(member.pid)

    def _call(self, action: Callable[[Member, int | None], None], member: Member, code: int | None) -> None:
        with contextlib.suppress(RuntimeError):  # the run's loop has ended
            self._loop.call_soon_threadsafe(action, member, code)

    def _exited(self, member: Member, code: int | None) -> None:
        member.exited = True
        self._on_exit(member, code)


class Starters:
    """The processes here and on other machines. Create it inside the run's loop."""

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
        """Return the address at which nodes elsewhere reach the launcher, None if there are none. Raise UsageError."""
        remotes = [remote for remote in self._job.remotes if remote is not None]
        if remotes:
            return await meeting_host(remotes, self._ssh)
        return host_of(self._coordinator) if self._coordinator is not None and any(self._job.addresses) else None

    async def start(self, members: Sequence[Member], host: str, port: int) -> None:
        """Start *members* with the launcher at *host*:*port* as their rendezvous. Raise RunError."""
        rendezvous = show_endpoint(host, port)
        self.logs.make()
        if self._wants_panes:
            await self._show(members)
        await self.start_again(members, rendezvous)

    async def start_again(self, members: Sequence[Member], rendezvous: str) -> None:
        """Start *members*, which have no process, for the first time or again. Raise RunError."""

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
        """Return the certificates of *group*, and those to check its peers."""
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
        """Stop the process of *member*, heartbeats included, or resume it."""
        self._here.pause(member, paused)
        self._there.pause(member, paused)

    def abandon(self) -> None:
        """Start no more processes."""
        self._here.abandon()

    async def close(self) -> None:
        """End all processes on other machines, as far as this one can ensure it."""
        await self._there.close()
        await self._panes.close()


def _contents(job: ClusterJob) -> dict[str, bytes]:
    """Return user code by path. Raise UsageError if it cannot be read or is too large."""
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
