"""The end of a run on all its nodes: they hand in what there is, and then none of them stays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from simcluster_backends.sockets.launcher.member import Member
from simcluster_backends.sockets.launcher.starters import Starters
from simcluster_backends.sockets.wire.messages import End, Stop

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
