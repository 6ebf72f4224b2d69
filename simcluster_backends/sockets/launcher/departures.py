"""The ends of nodes: one is lost, or leaves; and at the end of the run none of them stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from simcluster_backends.common.verdict import Verdict
from simcluster_backends.sockets.launcher.admission import Comers
from simcluster_backends.sockets.launcher.faults import Faults
from simcluster_backends.sockets.launcher.member import Member
from simcluster_backends.sockets.launcher.starters import Starters
from simcluster_backends.sockets.wire.messages import Crash, End, PeerGone, Stop

STOP_S = 3.0
"""How long a node may take to hand in what it has once the run has failed, or the next piece of it."""

log = logging.getLogger("simcluster.sockets")


class Ending:
    """That of one run of *members*. *changed* is set whenever anything happens to one."""

    def __init__(self, members: Sequence[Member], starters: Starters, changed: asyncio.Event) -> None:
        self._members, self._starters, self._changed = members, starters, changed
        self._loop = asyncio.get_running_loop()
        self.is_stopping = self.has_begun = False

    async def stop(self, reason: str) -> None:
        """The run has failed: everyone hands in what there is, soon."""
        self.is_stopping = True
        for member in self._members:
            member.tell(Stop(reason))
        try:
            async with asyncio.timeout(STOP_S) as limit:
                pieces = 0
                while not all(member.ended or member.connection is None for member in self._members):
                    self._changed.clear()
                    await self._changed.wait()
                    if sum(len(member.pieces) for member in self._members) > pieces:  # weights are still on their way
                        pieces = sum(len(member.pieces) for member in self._members)
                        limit.reschedule(self._loop.time() + STOP_S)
        except TimeoutError:
            late = [member.label for member in self._members if not member.ended]
            log.warning("ended without their last words: %s", ", ".join(late))

    async def end(self) -> None:
        """Kill every node that does not leave when told to."""
        self.has_begun = True
        self._starters.abandon()
        for member in self._members:
            member.tell(End())
        try:
            async with asyncio.timeout(STOP_S):
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

    def _kill_all(self) -> None:
        for member in self._members:
            self._starters.kill(member)


class Losses:
    """The members that are gone before the end of the run: the others are notified, and the verdict."""

    def __init__(
        self,
        members: Sequence[Member],
        changed: asyncio.Event,
        verdict: Verdict,
        faults: Faults,
        comers: Comers,
        starters: Starters,
        ending: Ending,
        *,
        dead_s: float,
    ) -> None:
        self._members, self._changed, self._verdict, self._dead_s = members, changed, verdict, dead_s
        self._faults, self._comers, self._starters, self._ending = faults, comers, starters, ending

    def let_go(self, member: Member, reason: str) -> None:
        """It has left, as it was told to, and said so to its peers; whoever is on the way to it must not wait."""
        member.gone = reason
        self._faults.has_left(member.rank)
        for other in self._members:
            if other.is_coming:
                other.tell(PeerGone(member.rank, reason, member.incarnation))
        member.tell(End())

    def came(self, member: Member, reason: str) -> None:
        """It is among the others, though it was not there before, for *reason*."""
        log.info("%s has come, %s before", member.label, reason)
        self._faults.came(member.rank)
        self._verdict.came(member.rank, reason)
        self._changed.set()

    def left(self, member: Member, reason: str) -> None:
        member.connection = None
        self._comers.lost(member)
        self._died(member, f"its process is gone ({reason})")

    def exited(self, member: Member, code: int | None) -> None:
        if member.connection is None:
            log_file = self._starters.logs.file(member.name)
            seen = f"see {log_file}" if log_file else "give the run a folder to see its messages"
            how = "" if code is None else f" with exit code {code}"
            self._comers.lost(member)
            self._died(member, f"its process ended{how} before it joined; {seen}")
        self._changed.set()

    def _died(self, member: Member, reason: str) -> None:
        """Without an outcome. Its peers are told, for one that was silent has not closed its connections."""
        self._changed.set()
        if member.ended or self._ending.has_begun:
            return
        member.gone = reason = self._faults.planned.get(member.rank, reason)
        self._verdict.died(member.rank, reason)
        self.tell_others(member, reason)

    def crash(self, member: Member) -> None:
        """The fault plan: this node dies now."""
        if member.ended:
            return
        if member.by_hand:
            member.tell(Crash())
        else:
            self._starters.kill(member)

    def give_up_on(self, member: Member) -> None:
        self._died(member, f"silent for {self._dead_s:g} s")
        self._starters.kill(member)
        if member.connection is not None:
            member.connection.abort("silent for too long")

    def tell_others(self, member: Member, reason: str) -> None:
        for other in self._members:
            if other is not member and (other.is_coming or not other.ended):
                other.tell(PeerGone(member.rank, reason, member.incarnation))
