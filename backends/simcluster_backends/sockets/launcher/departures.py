"""Handle nodes that are lost or leave, and end a run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from simcluster.errors import ABSENT
from simcluster_backends.common.verdict import Verdict
from simcluster_backends.sockets.launcher.admission import LateJoiners
from simcluster_backends.sockets.launcher.faults import LauncherFaults
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.launcher.starters import Starters
from simcluster_backends.sockets.wire.messages import ExitOrder, PeerGone, StopOrder

STOP_S = 3.0
"""The time that a node of a failed run has to hand in its results, or the next piece of them."""

GONE_S = 1.0
"""The time that a lost node's process has to exit after its connection has ended."""

log = logging.getLogger("simcluster.sockets")


@dataclass
class Departures:
    """Report the losses of *members* to the other nodes and to *verdict*, and end the run.

    *changed* is set at every change of a member. *at_s* returns the time by the run's clock. A node
    that is lost without a planned fault is started again; the run allows *revivals* such starts.
    """

    members: Sequence[NodeHandle]
    changed: asyncio.Event
    dead_s: float
    verdict: Verdict
    faults: LauncherFaults
    comers: LateJoiners
    starters: Starters
    at_s: Callable[[], float]
    revivals: int = 0
    is_stopping: bool = False
    has_begun_to_end: bool = False

    async def stop(self, reason: str) -> None:
        """Order all nodes of a failed run to stop for *reason*; wait for their results so far."""
        self.is_stopping = True
        for member in self.members:
            member.tell(StopOrder(reason))
        try:
            async with asyncio.timeout(STOP_S) as limit:
                pieces = 0
                while not all(member.ended or member.connection is None for member in self.members):
                    self.changed.clear()
                    await self.changed.wait()
                    arrived = sum(member.pieces.size_bytes for member in self.members)
                    if arrived > pieces:  # weights are still in flight
                        pieces = arrived
                        limit.reschedule(asyncio.get_running_loop().time() + STOP_S)
        except TimeoutError:
            late = [member.label for member in self.members if not member.ended]
            log.warning("ended without an outcome: %s", ", ".join(late))

    async def end(self) -> None:
        """Order every node to exit, kill every process that does not, and close all connections."""
        self.has_begun_to_end = True
        self.starters.abandon()
        for member in self.members:
            member.tell(ExitOrder())
        try:
            async with asyncio.timeout(STOP_S):
                await self._exits_of_lost()
                while not all(member.exited and member.connection is None for member in self.members):
                    # A node that has not ended by now may never exit: kill all at once.
                    if not all(member.ended for member in self.members):
                        self._kill_all()
                    self.changed.clear()
                    await self.changed.wait()
        except (TimeoutError, asyncio.CancelledError) as end:
            self._kill_all()
            if isinstance(end, asyncio.CancelledError):  # a second Ctrl-C
                raise
        for member in self.members:
            if member.connection is not None:
                await member.connection.end(grace_s=0.0)
        await self.starters.close()

    async def _exits_of_lost(self) -> None:
        """Wait for the exits of lost processes: our own kill would replace their exit codes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_S):
                while any(member.gone and not (member.exited or member.connection) for member in self.members):
                    self.changed.clear()
                    await self.changed.wait()

    def _kill_all(self) -> None:
        for member in self.members:
            self._kill(member)

    def _kill(self, member: NodeHandle) -> None:
        member.is_killed = True
        self.starters.signal(member, "SIGKILL")

    # losses during the run

    def let_go(self, member: NodeHandle, reason: str) -> None:
        """Let *member*, which has left as ordered, exit.

        It has notified its peers. Late joiners are no peers yet, so notify them here.
        """
        member.gone = reason
        self.faults.has_left(member.rank)
        for other in self.members:
            if other.is_coming:
                other.tell(PeerGone(member.rank, reason, member.incarnation))
        member.tell(ExitOrder())

    def came(self, member: NodeHandle, reason: str) -> None:
        """Note that *member*, which was absent for *reason*, has joined."""
        log.info("%s has joined, %s before", member.label, reason)
        self.faults.came(member.rank)
        self.verdict.came(member.rank, reason)
        self.changed.set()

    def left(self, member: NodeHandle, reason: str) -> None:
        member.connection = None
        self._drop(member)
        self._died(member, f"its process is gone ({reason})")

    def exited(self, member: NodeHandle, code: int | None) -> None:
        if code and not member.is_killed and member.rank not in self.faults.planned:
            member.exit_code = code
            self._tell_exit(member)
        if member.connection is None:
            log_file = self.starters.logs.file(member.name)
            seen = f"see {log_file}" if log_file else "log its output by giving the run a directory"
            how = "" if code is None else f" with exit code {code}"
            self._drop(member)
            self._died(member, f"its process ended{how} before it joined; {seen}")
        self.changed.set()

    def _died(self, member: NodeHandle, reason: str) -> None:
        """Note that *member* is lost for *reason*, and notify its peers.

        The peers may not know: a silent node has not closed its connections.
        """
        self.changed.set()
        if member.ended or self.has_begun_to_end:
            return
        member.gone = reason = self.faults.planned.get(member.rank, reason)
        self._tell_exit(member)
        self.verdict.died(member.rank, reason, self.at_s())
        self.tell_others(member, reason)
        self._revive(member)

    def _tell_exit(self, member: NodeHandle) -> None:
        """Log the exit code of *member*'s process once both the loss and the code are known."""
        if member.gone is not None and member.exit_code is not None:
            log.warning("%s: its process ended with exit code %d", member.label, member.exit_code)
            member.exit_code = None

    def _drop(self, member: NodeHandle) -> None:
        """Drop *member* if it was joining; start it again if it had been lost before."""
        if member.is_coming:
            self.comers.lost(member)
            if member.gone != ABSENT and not self.has_begun_to_end:
                self._revive(member)

    def _revive(self, member: NodeHandle) -> None:
        """Start the process of *member* again, while the run lasts and a revival is left.

        Do nothing if the process was started by hand, or if a planned fault ended it.
        """
        revives = self.revivals > 0 and self.at_s() > 0 and not self.is_stopping
        if revives and not member.by_hand and member.rank not in self.faults.planned:
            self.revivals -= 1
            self.comers.bring(member.rank)

    def give_up_on(self, member: NodeHandle) -> None:
        self._died(member, f"silent for {self.dead_s:g} s")
        self._kill(member)
        if member.connection is not None:
            member.connection.abort("silent for too long")

    def tell_others(self, member: NodeHandle, reason: str) -> None:
        for other in self.members:
            if other is not member and (other.is_coming or not other.ended):
                other.tell(PeerGone(member.rank, reason, member.incarnation))
