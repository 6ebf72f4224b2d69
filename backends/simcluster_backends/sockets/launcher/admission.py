"""Admit nodes to a run, which begins once all nodes, or enough, are ready; others join late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from simcluster.errors import ABSENT, ENDED, LaunchFailed, SimclusterError
from simcluster.job import unlike
from simcluster.spelling import nearest
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.wire.messages import Addresses, GoOrder, NodeOutcome, StopOrder


def refusal(name: str, members: Sequence[NodeHandle]) -> str | None:
    """Return why a node called *name* may not join; None if that node is expected and absent."""
    member = next((member for member in members if member.name == name), None)
    if member is None:
        return f"no node {name!r} in this run; {nearest(name, [member.name for member in members])}"
    taken = member.connection is not None or (member.ended and member.gone is None)
    return f"the name {name!r} is taken" if taken else None


def are_enough(members: Sequence[NodeHandle], min_workers: int | None) -> bool:
    """Return whether enough *members* are ready for the run to begin.

    The first expected rank must be ready, too. It is normally rank 0, which evaluates, and hosts
    the server if the algorithm has one.
    """
    expected = [member for member in members if member.gone is None]
    ready = [member for member in expected if member.listening is not None]
    return len(ready) >= min(min_workers or len(expected), len(expected)) and expected[:1] == ready[:1]


def begin_with(members: Sequence[NodeHandle]) -> list[NodeHandle]:
    """Send all addresses to the ready *members*, the founders, and return these.

    Mark the other members as absent: they may join late.
    """
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
    """Raise LaunchFailed unless all *members*, which have prepared their data, hold the same."""
    if found := unlike({member.label: member.held for member in members}):
        raise LaunchFailed("not every rank has the same data", found)


class StartLimit:
    """The timeout *limit* of a start: *start_s* from the start, or from the last `postpone`.

    All postponements together add at most *loop_s*.
    """

    def __init__(self, limit: asyncio.Timeout, start_s: float, loop_s: float) -> None:
        self._limit = limit
        self._start_s = start_s
        self._latest_s = asyncio.get_running_loop().time() + start_s + loop_s

    def postpone(self) -> None:
        """Restart the timeout, because a node reports that it is still preparing its part."""
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


@dataclass
class LateJoiners:
    """The late joiners among *members*. *changed* is set at every change of a member.

    *start* starts a member's process and *kill* ends it. *came* is called when a member has joined,
    with the reason for its absence. *at_s* returns the time by the run's clock. A member that is
    not ready within *patience_s* is dropped; a member that is still preparing its part is dropped
    only after *loop_s*.
    """

    members: Sequence[NodeHandle]
    changed: asyncio.Event
    start: Callable[[NodeHandle], Awaitable[None]]
    kill: Callable[[NodeHandle], object]
    came: Callable[[NodeHandle, str], object]
    at_s: Callable[[], float]
    patience_s: float
    loop_s: float

    def __post_init__(self) -> None:
        self._bringing: dict[int, asyncio.Task[None]] = {}
        self._taking_in: asyncio.Task[None] | None = None

    @property
    def any(self) -> bool:
        """Whether a node is joining."""
        return any(member.is_coming for member in self.members) or bool(self._bringing)

    def begin(self) -> None:
        """Admit late joiners: the run has begun."""
        self._taking_in = asyncio.create_task(self._take_in_all())
        for member in self.members:
            if member.is_coming:
                self._expect(member)

    def bring(self, rank: int) -> None:
        """Start the process of *rank*, for the first time or again, once the previous one has exited."""
        task = self._bringing[rank] = asyncio.create_task(self._bring(self.members[rank]))
        task.add_done_callback(partial(self._brought, rank))

    def joined(self, member: NodeHandle) -> None:
        """Expect *member* to join: a new process, perhaps started by hand, has connected for it."""
        if not member.is_coming:
            member.restart()
            self._expect(member)

    def lost(self, member: NodeHandle) -> None:
        """Drop *member* if it was joining: its process has exited."""
        if member.is_coming:
            self._give_up(member, "its process exited before it had joined")

    def refused(self, member: NodeHandle, outcome: NodeOutcome) -> None:
        """Drop *member*, which could not connect to its peers or prepare its part."""
        self._give_up(member, outcome.failure.text if outcome.failure is not None else "it has nothing to do")

    async def close(self) -> None:
        """Admit no more nodes; drop the nodes that are joining."""
        tasks = [*self._bringing.values(), *([self._taking_in] if self._taking_in is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in self.members:
            if member.is_coming:
                self._give_up(member, "the run has ended")

    # internal

    async def _bring(self, member: NodeHandle) -> None:
        await self._until(lambda: member.ended and member.exited and member.connection is None)
        if member.gone is None or member.is_coming:
            return  # it had finished, or another process has joined in its place
        member.restart()
        self._expect(member)
        try:
            await self.start(member)
        except (SimclusterError, OSError) as error:
            self._give_up(member, str(error))

    def _expect(self, member: NodeHandle) -> None:
        """Drop *member* if it does not listen in time, because other nodes may wait for it."""
        incarnation = member.incarnation
        loop = asyncio.get_running_loop()
        latest_s = loop.time() + self.loop_s

        def check() -> None:
            if not member.is_coming or member.incarnation != incarnation or member.listening is not None:
                return
            if member.is_preparing and loop.time() < latest_s:
                loop.call_later(self.patience_s, check)
            else:
                self._give_up(member, f"it was not ready within {self.patience_s:g} s")

        loop.call_later(self.patience_s, check)

    def _brought(self, rank: int, task: asyncio.Task[None]) -> None:
        if self._bringing.get(rank) is task:  # otherwise it died at its start, and starts again
            del self._bringing[rank]
        self.changed.set()

    async def _take_in_all(self) -> None:
        def ready() -> list[NodeHandle]:
            return [member for member in self.members if member.is_coming and member.listening is not None]

        while True:
            await self._until(lambda: bool(ready()))
            await self._take_in(ready()[0])

    async def _take_in(self, member: NodeHandle) -> None:
        others = [other for other in self.members if other is not member]
        gone = {other.rank: _why(other) for other in others if not other.is_there}
        addresses = [other.listening or ("", 0) for other in self.members]
        member.tell(Addresses(addresses, gone, member.incarnation))
        try:
            async with asyncio.timeout(self.patience_s):
                await self._until(lambda: member.connected or not member.is_coming)
        except TimeoutError:
            self._give_up(member, f"it did not connect to all peers within {self.patience_s:g} s")
        there = [other for other in others if other.is_there and other.connected]
        if member.is_coming and there and (found := unlike({one.label: one.held for one in (there[0], member)})):
            self._give_up(member, found[0])
        if member.is_coming:
            reason = member.gone or ""
            member.is_coming = False
            member.gone = None
            self.came(member, reason)
            member.tell(GoOrder(self.at_s()))

    def _give_up(self, member: NodeHandle, why: str) -> None:
        log.warning("%s did not join: %s", member.label, why)
        member.is_coming = False
        member.listening = None
        member.connected = False
        self.kill(member)
        if member.connection is not None:
            member.tell(StopOrder(why))
            member.connection.close(why)
        self.changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def _why(member: NodeHandle) -> str:
    """Return the reason for which no node can connect to *member*."""
    failure = member.outcome.failure if member.outcome is not None else None
    return member.gone or (f"failed: {failure.text}" if failure is not None else ENDED)
