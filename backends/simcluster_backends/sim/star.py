"""One wait in the place of several, for a server and its workers: see simcluster.transport.OptionalVerbs.

An object here stands where a future of a task would, for the stream that its message leaves by or the mailbox of its
node. It notes at the same instant what the task would have noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from simcluster.errors import PeerLost
from simcluster.transport import ANY

if TYPE_CHECKING:
    from simcluster.payload import Message
    from simcluster_backends.sim.member import SimMember


class PendingQuestion:
    """A question of *member* to rank *to* that leaves, and then the wait for its *answer*.

    *future* ends with the answer, or with None if the caller has to receive it; *waits*: the answer will come there.
    """

    __slots__ = ("_answer", "_member", "_size_bytes", "_tag", "_to", "future", "since_s", "waits")

    def __init__(
        self, member: SimMember, future: asyncio.Future[Any], to: int, tag: str, answer: str, size_bytes: int
    ) -> None:  # fmt: skip
        self._member, self.future, self._to, self._tag, self._answer = member, future, to, tag, answer
        self.waits, self.since_s, self._size_bytes = False, member.loop.clock._now, size_bytes

    def done(self) -> bool:
        return self.waits or self.future.done()

    def set_result(self, _: None) -> None:
        """Note that the question has left."""
        member = self._member
        now_s = member.loop.clock._now
        member.recorder.span("send", self.since_s, now_s, self._to, self._tag, self._size_bytes)
        self.since_s = now_s
        self.waits = member.wait_quietly(self._to, self._answer, self.future)
        if not self.waits:
            self.future.set_result(None)

    def set_exception(self, error: BaseException) -> None:
        self.future.set_exception(error)


class FanOut:
    """The messages of *member* under *tag* that have not left; *future* ends when all have left or are lost.

    *over* is called with the rank of each, and whether it is lost.
    """

    def __init__(
        self, member: SimMember, future: asyncio.Future[None], left: int, tag: str, over: Callable[[int, bool], object]
    ) -> None:
        self.clock, self.recorder = member.loop.clock, member.recorder
        self.future, self.left, self.tag, self.over = future, left, tag, over
        self.since_s = self.clock._now

    def ends(self, to: int, *, is_lost: bool = False) -> None:
        self.left -= 1
        self.over(to, is_lost)
        if not self.left and not self.future.done():
            self.future.set_result(None)


class FanOutSend:
    """The message to rank *to* among those of *sharing*."""

    __slots__ = ("_is_over", "_sharing", "_size_bytes", "_to")

    def __init__(self, sharing: FanOut, to: int, size_bytes: int) -> None:
        self._sharing, self._to, self._size_bytes, self._is_over = sharing, to, size_bytes, False

    def done(self) -> bool:
        return self._is_over

    def set_result(self, _: None) -> None:
        sharing, self._is_over = self._sharing, True
        sharing.recorder.span("send", sharing.since_s, sharing.clock._now, self._to, sharing.tag, self._size_bytes)
        sharing.ends(self._to)

    def set_exception(self, error: BaseException) -> None:
        self._is_over = True
        if isinstance(error, PeerLost):
            self._sharing.ends(self._to, is_lost=True)
        elif not self._sharing.future.done():
            self._sharing.future.set_exception(error)


class MessageGathering:
    """A receiver of the next *most* messages to *member* from any rank under *tag*, which go *into* a list.

    *future* ends when they are there, or earlier if there is news of peers.
    """

    __slots__ = ("_into", "_left", "_member", "_since_s", "_tag", "future")

    def __init__(
        self, member: SimMember, future: asyncio.Future[None], tag: str, most: int, into: list[Message]
    ) -> None:
        self._member, self.future, self._tag, self._left, self._into = member, future, tag, most, into
        self._since_s = member.loop.clock._now

    def wait(self) -> None:
        self._member.inbox.mailbox.wait(ANY, self._tag, cast(Any, self))

    def give_up(self) -> None:
        """Wait no more: the caller is cancelled, and another receiver has to raise what this one has not."""
        inbox, future = self._member.inbox, self.future
        inbox.mailbox.withdraw(cast(Any, self))
        if future.done() and not future.cancelled() and future.exception() is not None:
            inbox.give_up(ANY, cast(Any, future))

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, message: Message) -> None:
        member, self._left = self._member, self._left - 1
        now_s, recorder = member.loop.clock._now, member.recorder
        recorder.received(message.size_bytes)
        recorder.span("recv", self._since_s, now_s, message.source, message.tag, message.size_bytes)
        self._since_s = now_s
        self._into.append(message)
        if self._left and not member.membership.has_news:
            self.wait()
        else:
            self.future.set_result(None)

    def set_exception(self, error: BaseException) -> None:
        self.future.set_exception(error)
