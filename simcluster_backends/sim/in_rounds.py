"""A node's part in the rounds of a schedule, without a step of its task for each message.

All happens at the places in the loop's queue at which the task would do it; the task waits for the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from simcluster_backends.sim.loop.callbacks import answer_next

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from simcluster.payload import Message, Payload
    from simcluster.rounds import Rounds
    from simcluster_backends.sim.member import Member
    from simcluster_backends.sim.outgoing import Outgoing


class Half:
    """The half of an exchange that its stream or inbox completes, like a future; *then* is called at that moment."""

    __slots__ = ("error", "is_done", "then")

    def __init__(self, then: Callable[[Any], None]) -> None:
        self.then, self.is_done = then, False
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self.is_done

    def set_result(self, result: Any) -> None:
        self.is_done = True
        self.then(result)

    def set_exception(self, error: BaseException) -> None:
        self.is_done, self.error = True, error
        self.then(None)


class InRounds:
    """The exchanges of *member* in *rounds* from number *first* on, until one is *in_doubt*; *over* has its number.

    *put* sends a message. An entry of the loop's queue, like a callback.
    """

    def __init__(
        self,
        member: Member,
        rounds: Rounds,
        first: int,
        put: Callable[[int, str, Payload, Any], Outgoing],
        in_doubt: Callable[[Rounds, int], bool],
    ) -> None:
        self._member, self._rounds, self._number = member, rounds, first
        self._put, self._in_doubt = put, in_doubt
        self._ready: deque[Any] = member.loop._ready
        self._clock = member.loop.clock
        self._inbox, self._recorder = member.inbox, member.recorder
        self._left, self._came = Half(self._has_left), Half(self._has_come)
        self._message: Message | None = None
        self._was_here = self._is_leaving = False
        self.over: asyncio.Future[int] = asyncio.Future(loop=member.loop)
        self.to = 0
        self.sending: Outgoing | None = None
        self._begin()

    def end(self) -> None:
        """Take back what is in flight: the task was cancelled, or one half has failed."""
        self._inbox.mailbox.withdraw(self._came)  # type: ignore[arg-type]
        if self._message is not None and not self._is_leaving:
            self._inbox.put(self._message, again=True)
        if self.sending is not None:
            self.sending.withdraw()

    # an entry of the loop's queue

    def owner(self) -> object:
        return self._member

    def run(self, _: asyncio.AbstractEventLoop) -> None:
        if self.over.done():  # the task was cancelled
            return
        try:
            self._go_on()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.over.set_exception(error)
            self._ready.appendleft(self._ready.pop())

    # one round

    def _begin(self) -> None:
        rounds, number, rank = self._rounds, self._number, self._member.rank
        self.to, source, self._tag = int(rounds.to(number, rank)), int(rounds.source(number, rank)), rounds.tag(number)
        self._start_s = self._clock._now
        self._left.is_done = self._came.is_done = False
        self.sending = self._put(self.to, self._tag, rounds.content(number, rank), self._left)
        mailbox = self._inbox.mailbox
        self._message = mailbox.take(source, self._tag)
        self._was_here = self._message is not None
        if self._was_here:
            self._ready.append(self)
        else:
            mailbox.wait(source, self._tag, self._came)  # type: ignore[arg-type]
            self.sending.partner = self._came  # type: ignore[assignment]

    def _has_come(self, message: Message | None) -> None:
        self._message = message
        self._ready.append(self)

    def _has_left(self, _: None) -> None:
        if self._is_leaving:
            self._ready.append(self)

    def _go_on(self) -> None:
        if not self._is_leaving:
            self._receive()
            if not self._left.is_done:
                self._is_leaving = True
                return
        self._is_leaving = False
        if self._left.error is not None:
            raise self._left.error
        sending, message, rounds, number = self.sending, self._message, self._rounds, self._number
        assert sending is not None
        assert message is not None
        self._recorder.span("send", self._start_s, sending.left_s, self.to, self._tag, sending.size_bytes)
        self.sending = self._message = None
        if rounds.receives is not None:
            rounds.receives(number, message)
        self._number = number + 1
        if self._number == rounds.count or self._in_doubt(rounds, self._number):
            answer_next(self._ready, self.over, self._number)
        else:
            self._begin()

    def _receive(self) -> None:
        if self._came.error is not None:
            raise self._came.error
        message = self._message
        assert message is not None
        if self._was_here:
            self._inbox._on_room(message.source)
        self._recorder.received(message.size_bytes)
        self._recorder.span("recv", self._start_s, self._clock._now, message.source, message.tag, message.size_bytes)
