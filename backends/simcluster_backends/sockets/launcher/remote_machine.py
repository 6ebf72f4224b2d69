"""Start the nodes of a run on other machines by ssh, over one connection per machine.

The connection is a lease: when it closes, for whatever reason, the machine ends its nodes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simcluster.errors import LaunchFailed
from simcluster_backends.sockets.launcher.agent_process import CLOSE_S, LAST_LINES, kill_agent, next_line, start_agent
from simcluster_backends.sockets.launcher.fork_process import SignalName
from simcluster_backends.sockets.launcher.logs import Logs
from simcluster_backends.sockets.launcher.machine_messages import (
    MachineReport,
    NodeAddress,
    OutputLine,
    ProcessExit,
    SignalOrder,
    StartOrder,
    ToMachine,
    differences,
    fingerprint,
    line_of,
    read_from_machine,
)
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.net.addresses import show_endpoint
from simcluster_backends.sockets.net.ssh import Ssh

MakeOrder = Callable[[Sequence[NodeHandle], list[NodeAddress]], StartOrder]


class RemoteMachine:
    """One machine, and the connection that starts all its *members*.

    The members have the same ssh target and command. *tell* is called with each line of a member's
    output, and *on_exit* with its exit code, or None if that is unknown.
    """

    def __init__(
        self,
        members: Sequence[NodeHandle],
        tell: Callable[[NodeHandle, str], None],
        on_exit: Callable[[NodeHandle, int | None], None],
    ) -> None:
        remote = members[0].remote
        assert remote is not None
        self.members = {member.name: member for member in members}
        self.remote = remote
        self.report: asyncio.Future[MachineReport] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self._ended: tuple[int | None] | None = None  # (exit code,) once it has ended
        self._tell = tell
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process | None = None
        self._last: deque[str] = deque(maxlen=LAST_LINES)

    @property
    def label(self) -> str:
        return f"{', '.join(self.members)} (ssh {self.remote.ssh})"

    async def live(self, arguments: Sequence[str]) -> None:
        """Run the connection to its end. By then, *report* has a result or an error."""
        try:
            self._process = await start_agent(arguments)
        except OSError as error:
            self._end(str(error), None)
            return
        try:
            await asyncio.gather(self._hear(self._process.stdout), self._hear(self._process.stderr))
            code = await self._process.wait()
        except asyncio.CancelledError:
            await kill_agent(self._process)
            raise
        said = f": {'; '.join(self._last)}" if self._last else ""
        self._end(f"ended with exit code {code} before it was ready{said}", code)

    def begin(self, order: StartOrder) -> None:
        """Send *order*. From now on, each exit of a member is reported to *on_exit*."""
        for member in self.members.values():
            member.exited = False
        self.send(order)
        if self._ended is not None:  # the connection ended after its report: no exit will follow
            self._all_exited(*self._ended)

    def send(self, message: ToMachine) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(line_of(message))

    def let_go(self) -> None:
        """End the lease, and with it all processes that still run there."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def _hear(self, stream: asyncio.StreamReader | None) -> None:
        while line := await next_line(stream):
            self._understand(line)

    def _understand(self, line: bytes) -> None:
        message = read_from_machine(line)
        if isinstance(message, MachineReport):
            if not self.report.done():
                self.report.set_result(message)
        elif isinstance(message, OutputLine) and message.node in self.members:
            self._tell(self.members[message.node], message.line)
        elif isinstance(message, ProcessExit) and message.node in self.members:
            self._exited(self.members[message.node], message.code)
        elif message is None and (text := line.decode(errors="replace").rstrip()):
            self._last.append(text)
            for member in list(self.members.values())[:1]:
                self._tell(member, text)

    def _end(self, reason: str, code: int | None) -> None:
        if not self.report.done():
            self.report.set_exception(LaunchFailed("", [f"{self.label} {reason}"]))
            self.report.exception()  # mark it as retrieved: it may not be awaited
        self._ended = (code,)
        self._all_exited(code)

    def _all_exited(self, code: int | None) -> None:
        for member in self.members.values():
            self._exited(member, code)

    def _exited(self, member: NodeHandle, code: int | None) -> None:
        if not member.exited:
            member.exited = True
            self._on_exit(member, code)


@dataclass
class Remotes:
    """The processes on other machines: start them, report their exits, and end them.

    Create it inside the run's loop.
    """

    ssh: Ssh
    on_exit: Callable[[NodeHandle, int | None], None]
    logs: Logs
    on_output: Callable[[str, str], None] | None

    def __post_init__(self) -> None:
        self._machines: list[RemoteMachine] = []
        self._of: dict[str, RemoteMachine] = {}

    async def start(self, members: Sequence[NodeHandle], make_order: MakeOrder) -> None:
        """Start *members*, each at its `remote`. Raise LaunchFailed with all machines' problems."""
        alike: dict[tuple[str, tuple[str, ...]], list[NodeHandle]] = {}
        new: list[RemoteMachine] = []
        for member in members:
            assert member.remote is not None
            alike.setdefault((member.remote.ssh, member.remote.command), []).append(member)
        for group in alike.values():
            machine = RemoteMachine(group, self._tell, self.on_exit)
            new.append(machine)
            for member in group:
                if member.name in self._of:  # it rejoins, and its previous connection may still be open
                    self._of[member.name].members.pop(member.name, None)
            self._of |= dict.fromkeys((member.name for member in group), machine)
            words = [*machine.remote.command, "node", group[0].name, "--launched"]
            machine.task = asyncio.create_task(machine.live(self.ssh.command(machine.remote.ssh, words)))
        self._machines += new
        if new:
            await self._check(new)
        for machine in new:
            group, places = list(machine.members.values()), []
            for name, member in machine.members.items():
                assert member.remote is not None
                address, port = member.remote.address, member.remote.port
                places.append(NodeAddress(name, "" if address is None else show_endpoint(address, port)))
            machine.begin(make_order(group, places))

    async def _check(self, machines: Sequence[RemoteMachine]) -> None:
        """Raise LaunchFailed unless all *machines* are reachable and have this machine's fingerprint."""
        here, reasons = await asyncio.to_thread(fingerprint), []
        for outcome, machine in zip(
            await asyncio.gather(*(machine.report for machine in machines), return_exceptions=True),
            machines,
            strict=True,
        ):
            if isinstance(outcome, LaunchFailed):
                reasons += outcome.reasons
            elif isinstance(outcome, BaseException):
                raise outcome
            elif words := differences(here, outcome.fingerprint):
                reasons.append(f"{machine.label} differs: {'; '.join(words)}")
        if reasons:
            what = "machine" if len(machines) == 1 else "machines"
            raise LaunchFailed(f"{len(reasons)} of {len(machines)} {what} cannot take part", reasons)

    def signal(self, member: NodeHandle, name: SignalName) -> None:
        """Send the signal *name* to *member*, if it runs on another machine."""
        if member.name in self._of and not member.exited:
            self._of[member.name].send(SignalOrder(member.name, name))

    async def close(self) -> None:
        """End all processes that were started, as far as this machine can ensure it."""
        tasks = [machine.task for machine in self._machines if machine.task is not None]
        for machine in self._machines:
            machine.let_go()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(self, member: NodeHandle, line: str) -> None:
        self.logs.append(member.name, line)
        if self.on_output is not None:
            self.on_output(member.name, line)
