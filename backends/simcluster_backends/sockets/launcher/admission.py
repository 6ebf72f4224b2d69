"""Admission to a run: it begins with all expected nodes, or with enough of them; the others join late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from simcluster.errors import ABSENT, ENDED, LaunchFailed, SimclusterError, nearest
from simcluster.job import unlike
from simcluster_backends.sockets.launcher.member import NodeHandle
from simcluster_backends.sockets.wire.messages import Addresses, GoOrder, NodeOutcome, StopOrder


def refusal(name: str, members: Sequence[NodeHandle]) -> str | None:
    """Return why a node called *name* may not join; None if that node is expected and absent."""
    member = next((member for member in members if member.name == name), None)
    if member is None:
        return f"no node {name!r} in this run; {nearest(name, [member.name for member in members])}"
    taken = member.connection is not None or (member.ended and member.gone is None)
    return f"the name {name!r} is taken" if taken else None


def are_enough(members: Sequence[NodeHandle], min_workers: int | None) -> bool:
    """Return whether the run can begin: never without rank 0, which evaluates and hosts any server."""
    expected = [member for member in members if member.gone is None]
    ready = [member for member in expected if member.listening is not None]
    return len(ready) >= min(min_workers or len(expected), len(expected)) and expected[:1] == ready[:1]


def begin_with(members: Sequence[NodeHandle]) -> list[NodeHandle]:
    """Return the founders: the ready *members*, each sent the addresses. The others join late, if they join."""
    founders = [member for member in members if member.gone is None and member.listening is not None]
    for member in members:
        if member.gone is None and member.listening is None:
            member.gone = ABSENT
            if member.connection is not None or not member.by_hand:
                member.come()
    gone = {member.rank: member.gone for member in members if member.gone is not None}
    addresses = [member.listening or ("", 0) for member in members]
    for member in founders:
        member.tell(Addresses(addresses, gone))
    return founders


def check_alike(members: Sequence[NodeHandle]) -> None:
    """Raise LaunchFailed if some of *members*, which have prepared their parts, hold other samples than others."""
    if found := unlike({member.label: member.held for member in members}):
        raise LaunchFailed("not every rank has the same data", found)


class StartLimit:
    """The *limit* of a start: *start_s*, counted again from each `postpone`, and at most *loop_s* more in all."""

    def __init__(self, limit: asyncio.Timeout, start_s: float, loop_s: float) -> None:
        self._limit, self._start_s = limit, start_s
        self._latest_s = asyncio.get_running_loop().time() + start_s + loop_s

    def postpone(self) -> None:
        """Count from now: a node is at work on its part."""
        if not self._limit.expired():
            self._limit.reschedule(min(asyncio.get_running_loop().time() + self._start_s, self._latest_s))


def missing(members: Sequence[NodeHandle], founders: Sequence[NodeHandle]) -> list[str]:
    """Describe the nodes that keep the run from beginning; *founders* is empty until they are known."""
    return [
        f"{member.label} has not {'become ready' if founders else 'joined'}"
        for member in members
        if member.gone is None and not (member.connected if founders else member.listening)
    ]


log = logging.getLogger("simcluster.sockets")


class LateJoiners:
    """The late joiners among *members*. *changed* is set at every change of a member.

    *start* starts a member's process and *kill* ends it. *came* is called when a member has joined, with the reason
    it was absent. *at_s* returns the run's clock. A member that is not ready within *patience_s* is dropped, unless it
    is preparing, for up to *loop_s*.
    """

    def __init__(
        self,
        members: Sequence[NodeHandle],
        changed: asyncio.Event,
        *,
        start: Callable[[NodeHandle], Awaitable[None]],
        kill: Callable[[NodeHandle], object],
        came: Callable[[NodeHandle, str], object],
        at_s: Callable[[], float],
        patience_s: float,
        loop_s: float,
    ) -> None:
        self._members, self._changed, self._patience_s, self._loop_s = members, changed, patience_s, loop_s
        self._start, self._kill, self._came, self._at_s = start, kill, came, at_s
        self._bringing: dict[int, asyncio.Task[None]] = {}
        self._taking_in: asyncio.Task[None] | None = None

    @property
    def any(self) -> bool:
        """Whether a node is joining."""
        return any(member.is_coming for member in self._members) or bool(self._bringing)

    def begin(self) -> None:
        """Admit late joiners: the run has begun."""
        self._taking_in = asyncio.create_task(self._take_in_all())
        for member in self._members:
            if member.is_coming:
                self._expect(member)

    def bring(self, rank: int) -> None:
        """Start the process of *rank*, for the first time or again, once the previous one has exited."""
        task = self._bringing[rank] = asyncio.create_task(self._bring(self._members[rank]))
        task.add_done_callback(partial(self._brought, rank))

    def joined(self, member: NodeHandle) -> None:
        """Expect *member*, which has connected in place of a lost node, perhaps started by hand."""
        if not member.is_coming:
            member.restart()
            self._expect(member)

    def lost(self, member: NodeHandle) -> None:
        """Drop *member* if it was joining: its process has exited."""
        if member.is_coming:
            self._give_up(member, "its process exited before it had joined")

    def refused(self, member: NodeHandle, outcome: NodeOutcome) -> None:
        """Drop *member*, which could not connect or prepare itself."""
        self._give_up(member, outcome.failure.text if outcome.failure is not None else "it has nothing to do")

    async def close(self) -> None:
        """Admit no more nodes; drop those that are joining."""
        tasks = [*self._bringing.values(), *([self._taking_in] if self._taking_in is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self._members:
            if member.is_coming:
                self._give_up(member, "the run has ended")

    # inside

    async def _bring(self, member: NodeHandle) -> None:
        await self._until(lambda: member.ended and member.exited and member.connection is None)
        if member.gone is None or member.is_coming:
            return  # it had finished, or was started elsewhere
        member.restart()
        self._expect(member)
        try:
            await self._start(member)
        except (SimclusterError, OSError) as error:
            self._give_up(member, str(error))

    def _expect(self, member: NodeHandle) -> None:
        """Drop *member* unless it listens in time: others may wait for it."""
        incarnation, loop = member.incarnation, asyncio.get_running_loop()
        latest_s = loop.time() + self._loop_s

        def check() -> None:
            if not member.is_coming or member.incarnation != incarnation or member.listening is not None:
                return
            if member.is_preparing and loop.time() < latest_s:
                loop.call_later(self._patience_s, check)
            else:
                self._give_up(member, f"it was not ready within {self._patience_s:g} s")

        loop.call_later(self._patience_s, check)

    def _brought(self, rank: int, task: asyncio.Task[None]) -> None:
        if self._bringing.get(rank) is task:  # it may have died while it started, and be brought again
            del self._bringing[rank]
        self._changed.set()

    async def _take_in_all(self) -> None:
        def ready() -> list[NodeHandle]:
            return [member for member in self._members if member.is_coming and member.listening is not None]

        while True:
            await self._until(lambda: bool(ready()))
            await self._take_in(ready()[0])

    async def _take_in(self, member: NodeHandle) -> None:
        others = [other for other in self._members if other is not member]
        gone = {other.rank: _why(other) for other in others if not other.is_there}
        addresses = [other.listening or ("", 0) for other in self._members]
        member.tell(Addresses(addresses, gone, member.incarnation))
        try:
            async with asyncio.timeout(self._patience_s):
                await self._until(lambda: member.connected or not member.is_coming)
        except TimeoutError:
            self._give_up(member, f"it did not connect to all peers within {self._patience_s:g} s")
        there = [other for other in others if other.is_there and other.connected]
        if member.is_coming and there and (found := unlike({one.label: one.held for one in (there[0], member)})):
            self._give_up(member, found[0])
        if member.is_coming:
            reason, member.is_coming, member.gone = member.gone or "", False, None
            self._came(member, reason)
            member.tell(GoOrder(self._at_s()))

    def _give_up(self, member: NodeHandle, why: str) -> None:
        log.warning("%s did not join: %s", member.label, why)
        member.is_coming, member.listening, member.connected = False, None, False
        self._kill(member)
        if member.connection is not None:
            member.tell(StopOrder(why))
            member.connection.close(why)
        self._changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


def _why(member: NodeHandle) -> str:
    """Return why no node can connect to *member*."""
    failure = member.outcome.failure if member.outcome is not None else None
    return member.gone or (f"failed: {failure.text}" if failure is not None else ENDED)
