"""Start all nodes of a run that are not started by hand, here or by ssh on other machines."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import urllib.parse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from simcluster.errors import UsageError
from simcluster.job import ClusterJob
from simcluster.web.requests import is_loopback
from simcluster_backends.sockets.launcher.fork_process import SignalName
from simcluster_backends.sockets.launcher.fork_server import ForkServer, Start, fork_server
from simcluster_backends.sockets.launcher.logs import Logs, Panes
from simcluster_backends.sockets.launcher.machine_messages import ORDER_LIMIT_BYTES, NodeAddress, StartOrder
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.launcher.remote_machine import Remotes
from simcluster_backends.sockets.launcher.settings import SocketOptions, is_elsewhere
from simcluster_backends.sockets.net.addresses import facing, meeting_host, parse_endpoint, show_endpoint
from simcluster_backends.sockets.net.ssh import Ssh
from simcluster_backends.sockets.net.tls import files_for

log = logging.getLogger("simcluster.sockets")


class Starters:
    """The processes of a run, here and on other machines. Create it inside the run's loop."""

    def __init__(
        self, job: ClusterJob, options: SocketOptions, key: bytes, on_exit: Callable[[NodeHandle, int | None], None]
    ) -> None:
        self._job = job
        self._options = options
        self._key = key
        self._on_exit = on_exit
        self.logs = Logs(job.log_folder)
        self._ssh = Ssh(options.ssh_config, tuple(options.ssh_options))
        self._there = Remotes(self._ssh, on_exit, self.logs, job.on_output)
        self._loop = asyncio.get_running_loop()
        self._server: ForkServer | None = None
        self._starts: list[tuple[NodeHandle, Start]] = []
        self._abandoned = False
        self._files = _contents(job)
        self._tls = Path(options.tls).absolute() if options.tls is not None else None
        self._panes = Panes({})

    async def host(self) -> str | None:
        """Return the address at which nodes elsewhere reach the launcher; None if there are none.

        Raise UsageError if no single address of this machine faces all of them.
        """
        remotes = [remote for remote in self._job.remotes if remote is not None]
        if remotes:
            return await meeting_host(remotes, self._ssh)
        coordinator = self._options.coordinator
        if coordinator is None or not any(self._job.addresses):
            return None
        if not is_elsewhere(coordinator):
            return parse_endpoint(coordinator, "coordinator")[0]
        host = urllib.parse.urlsplit(coordinator).hostname or ""
        return host if is_loopback(host) else facing(host)

    async def start(self, members: Sequence[NodeHandle], rendezvous: str) -> None:
        """Start *members* of a new run, with the launcher at *rendezvous*. Raise RunError if that
        fails.
        """
        self.logs.make()
        if self._options.tmux:
            files = {member.name: self.logs.file(member.name) for member in members if not member.by_hand}
            self._panes = Panes({name: file for name, file in files.items() if file is not None})
            await self._panes.open()
            if self._job.on_output is not None:
                self._job.on_output("launcher", f"all nodes in tmux attach -t {self._panes.session}")
        if waited := [member.name for member in members if member.by_hand]:
            self._say_how_to_start(waited, rendezvous)
        elif self._options.rendezvous != SocketOptions.rendezvous and not any(self._job.remotes):
            self._say("starts all nodes here, since none has an `address`; a node started by hand replaces a lost one")
        await self.start_again(members, rendezvous)

    def _say_how_to_start(self, names: Sequence[str], rendezvous: str) -> None:
        """Report the nodes *names*, to be started by hand, and the command for one of them."""
        options, topology = self._options, self._job.topology
        join = f"--coordinator {options.coordinator} --token-file {options.token_file or 'FILE'}"
        if options.coordinator is None:
            join = f"--join {rendezvous} --key-file {options.key_file or 'FILE'}"
        text = (
            f"waits up to {options.start_s:g} s for {', '.join(names)}, which have addresses"
            f"{f' in {topology.name}' if topology is not None else ''} and so are started by hand: "
            f"simcluster node {names[0]} {join}; --topology with another one, without addresses, starts all here"
        )
        self._say(text)

    def _say(self, text: str) -> None:
        if self._job.on_output is not None:
            self._job.on_output("launcher", text)
        else:
            log.info("the run %s", text)

    async def start_again(self, members: Sequence[NodeHandle], rendezvous: str) -> None:
        """Start *members*, which have no process, for the first time or again. Raise RunError if
        that fails.
        """

        def order(group: Sequence[NodeHandle], places: list[NodeAddress]) -> StartOrder:
            tls = self._tls  # send only the group's certificates and keys, and the CA's certificate
            secrets = {path for member in group for path in files_for(tls, member.name)} if tls is not None else set()
            contents = {path.name: path.read_bytes() for path in secrets}
            return StartOrder(rendezvous, self._key.hex(), places, self._files, contents, self._job.preloads)

        await self._there.start([member for member in members if member.remote is not None], order)
        here = [member for member in members if member.remote is None and not member.by_hand]
        if here:
            await self._fork(here, rendezvous)

    def signal(self, member: NodeHandle, name: SignalName) -> None:
        """Kill, stop or resume the process of *member*, if it has one."""
        if self._server is not None and member.pid is not None and not member.exited:
            self._server.signal(member.pid, name)
        self._there.signal(member, name)

    def abandon(self) -> None:
        """Start no more processes here; kill those that are being started once they exist."""
        self._abandoned = True
        for member, start in self._starts:
            if not start.done() and self._server is not None:
                self._server.forget(start)
                member.exited = True

    async def close(self) -> None:
        """Close the panes, and end all processes on other machines as far as possible."""
        await self._there.close()
        await self._panes.close()

    async def _fork(self, members: Sequence[NodeHandle], rendezvous: str) -> None:
        """Fork a node for each of *members*. Raise RunError if the fork server is gone."""
        self._server = fork_server()
        preloads, starts = self._job.preloads, []
        for member in members:
            member.exited = False
            start = self._server.spawn(
                partial(self._exited, member),
                name=member.name,
                rendezvous=rendezvous,
                listen=show_endpoint(parse_endpoint(rendezvous, "rendezvous")[0], 0),
                key=self._key.hex(),
                tls=str(self._tls) if self._tls is not None else None,
                log_file=self.logs.file(member.name),
                preloads=preloads,
            )
            start.add_done_callback(partial(self._started, member))
            self._starts.append((member, start))
            starts.append(asyncio.wrap_future(start))
        await asyncio.gather(*starts)

    # called in the fork server's thread

    def _started(self, member: NodeHandle, start: concurrent.futures.Future[int]) -> None:
        if start.exception() is not None:
            member.exited = True
            return
        member.pid = start.result()
        if self._abandoned and self._server is not None:
            self._server.signal(member.pid, "SIGKILL")

    def _exited(self, member: NodeHandle, code: int | None) -> None:
        def tell() -> None:
            member.exited = True
            self._on_exit(member, code)

        with contextlib.suppress(RuntimeError):  # the run's loop has ended
            self._loop.call_soon_threadsafe(tell)


def _contents(job: ClusterJob) -> dict[str, bytes]:
    """Return the user code of *job*, path -> content.

    Raise UsageError if a file cannot be read, or if the files together are too large.
    """
    contents: dict[str, bytes] = {}
    for path in job.files:
        try:
            contents[str(path)] = path.read_bytes()
        except OSError as error:
            raise UsageError("own code", f"{path} ({error.strerror})", "a file that can be read") from None
    size_bytes = sum(map(len, contents.values()))
    if size_bytes > ORDER_LIMIT_BYTES // 2:
        raise UsageError("own code", f"{size_bytes} bytes", f"at most {ORDER_LIMIT_BYTES // 2} to be sent")
    return contents
