"""The ends of nodes: they are lost, leave, or are ended with the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from simcluster.errors import ABSENT
from simcluster_backends.common.verdict import Verdict
from simcluster_backends.sockets.launcher.admission import LateJoiners
from simcluster_backends.sockets.launcher.faults import LauncherFaults
from simcluster_backends.sockets.launcher.member import NodeHandle
from simcluster_backends.sockets.launcher.starters import Starters
from simcluster_backends.sockets.wire.messages import ExitOrder, PeerGone, StopOrder

STOP_S = 3.0
"""How long a node of a failed run may take to hand in its results, or the next piece of them."""

GONE_S = 1.0
"""How long the exit of a process may come after the end of its connection."""

log = logging.getLogger("simcluster.sockets")


class Departures:
    """The losses of *members*, reported to the other nodes and the verdict, and the end of their run.

    *changed* is set at every change of a member; *at_s* returns the time by the run's clock. A node lost against the
    plan is started again, *revivals* times in all.
    """

    def __init__(
        self,
        members: Sequence[NodeHandle],
        changed: asyncio.Event,
        dead_s: float,
        verdict: Verdict,
        faults: LauncherFaults,
        comers: LateJoiners,
        starters: Starters,
        at_s: Callable[[], float],
        revivals: int = 0,
    ) -> None:
        self._revivals = revivals
        self._members, self._changed, self._verdict, self._dead_s = members, changed, verdict, dead_s
        self._faults, self._comers, self._starters, self._at_s = faults, comers, starters, at_s
        self._loop = asyncio.get_running_loop()
        self.is_stopping = self.has_begun_to_end = False

    async def stop(self, reason: str) -> None:
        """End a failed run: every node hands in what it has."""
        self.is_stopping = True
        for member in self._members:
            member.tell(StopOrder(reason))
        try:
            async with asyncio.timeout(STOP_S) as limit:
                pieces = 0
                while not all(member.ended or member.connection is None for member in self._members):
                    self._changed.clear()
                    await self._changed.wait()
                    arrived = sum(member.pieces.size_bytes for member in self._members)
                    if arrived > pieces:  # weights are still in flight
                        pieces = arrived
                        limit.reschedule(self._loop.time() + STOP_S)
        except TimeoutError:
            late = [member.label for member in self._members if not member.ended]
            log.warning("ended without an outcome: %s", ", ".join(late))

    async def end(self) -> None:
        """Ask every node to exit; kill those that do not."""
        self.has_begun_to_end = True
        self._starters.abandon()
        for member in self._members:
            member.tell(ExitOrder())
        try:
            async with asyncio.timeout(STOP_S):
                await self._exits_of_lost()
                while not all(member.exited and member.connection is None for member in self._members):
                    if not all(member.ended for member in self._members):
                        self._kill_all()
                    self._changed.clear()
                    await self._changed.wait()
        except (TimeoutError, asyncio.CancelledError) as end:
            self._kill_all()
            if isinstance(end, asyncio.CancelledError):  # a second Ctrl-C
                raise
        for member in self._members:
            if member.connection is not None:
                await member.connection.end(grace_s=0.0)
        await self._starters.close()

    async def _exits_of_lost(self) -> None:
        """Wait for the exits of lost processes: after our own kill their exit codes would say nothing."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GONE_S):
                while any(member.gone and not (member.exited or member.connection) for member in self._members):
                    self._changed.clear()
                    await self._changed.wait()

    def _kill_all(self) -> None:
        for member in self._members:
            self._kill(member)

    def _kill(self, member: NodeHandle) -> None:
        member.is_killed = True
        self._starters.signal(member, "SIGKILL")

    # losses before the end

    def let_go(self, member: NodeHandle, reason: str) -> None:
        """End *member*, which has left as ordered and notified its peers; notify the late joiners too."""
        member.gone = reason
        self._faults.has_left(member.rank)
        for other in self._members:
            if other.is_coming:
                other.tell(PeerGone(member.rank, reason, member.incarnation))
        member.tell(ExitOrder())

    def came(self, member: NodeHandle, reason: str) -> None:
        """Note that *member*, absent until now for *reason*, has joined."""
        log.info("%s has joined, %s before", member.label, reason)
        self._faults.came(member.rank)
        self._verdict.came(member.rank, reason)
        self._changed.set()

    def left(self, member: NodeHandle, reason: str) -> None:
        member.connection = None
        self._drop(member)
        self._died(member, f"its process is gone ({reason})")

    def exited(self, member: NodeHandle, code: int | None) -> None:
        if code and not member.is_killed and member.rank not in self._faults.planned:
            member.exit_code = code
            self._tell_exit(member)
        if member.connection is None:
            log_file = self._starters.logs.file(member.name)
            seen = f"see {log_file}" if log_file else "log its output by giving the run a directory"
            how = "" if code is None else f" with exit code {code}"
            self._drop(member)
            self._died(member, f"its process ended{how} before it joined; {seen}")
        self._changed.set()

    def _died(self, member: NodeHandle, reason: str) -> None:
        """Note a loss without an outcome. Peers are notified, since a silent node has not closed its connections."""
        self._changed.set()
        if member.ended or self.has_begun_to_end:
            return
        member.gone = reason = self._faults.planned.get(member.rank, reason)
        self._tell_exit(member)
        self._verdict.died(member.rank, reason, self._at_s())
        self.tell_others(member, reason)
        self._revive(member)

    def _tell_exit(self, member: NodeHandle) -> None:
        """Log what ended a lost process, which its connection does not tell; the two ends come in either order."""
        if member.gone is not None and member.exit_code is not None:
            log.warning("%s: its process ended with exit code %d", member.label, member.exit_code)
            member.exit_code = None

    def _drop(self, member: NodeHandle) -> None:
        """Drop *member* if it was joining; start it again if it had been lost before."""
        if member.is_coming:
            self._comers.lost(member)
            if member.gone != ABSENT and not self.has_begun_to_end:
                self._revive(member)

    def _revive(self, member: NodeHandle) -> None:
        """Start the process of *member* again, which the plan did not end, unless there were too many revivals."""
        revives = self._revivals > 0 and self._at_s() > 0 and not self.is_stopping
        if revives and not member.by_hand and member.rank not in self._faults.planned:
            self._revivals -= 1
            self._comers.bring(member.rank)

    def give_up_on(self, member: NodeHandle) -> None:
        self._died(member, f"silent for {self._dead_s:g} s")
        self._kill(member)
        if member.connection is not None:
            member.connection.abort("silent for too long")

    def tell_others(self, member: NodeHandle, reason: str) -> None:
        for other in self._members:
            if other is not member and (other.is_coming or not other.ended):
                other.tell(PeerGone(member.rank, reason, member.incarnation))
