"""Ranks held back before the first message of a schedule, and how they begin after all: as if they never had been.

While they are held, only other ranks may go on, and only by themselves: see `ScheduleEntrants`. So nothing that the
held ranks would have done matters yet, and it can be done later, at its own time. The events until then, *moments*,
divide it: an alarm that is set late gets the number that it would have had, so events of one time keep their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from simcluster_backends.sim.lookahead.sizes import sent_ahead_B
from simcluster_backends.sim.loop.callbacks import Handle, answer_next
from simcluster_backends.sim.loop.past import in_the_past, run_until

if TYPE_CHECKING:
    from simcluster.rounds import Rounds
    from simcluster_backends.sim.loop.event_loop import SimLoop


class HoldFuture(asyncio.Future[int]):
    """The future of a held rank. If its task is cancelled, all that are held begin at once, and it is cancelled then.

    *begin_soon* lets them begin before anything else that is ready; without it, this is a future like any other.
    """

    def __init__(self, loop: SimLoop, begin_soon: Callable[[], object]) -> None:
        super().__init__(loop=loop)
        self.gives_up, self._task = False, asyncio.current_task(loop)
        self.begin_soon: Callable[[], object] | None = begin_soon

    def cancel(self, msg: Any | None = None) -> bool:
        if self.begin_soon is None or self.done():
            return super().cancel(msg)
        if not self.gives_up:
            self.gives_up = True
            self.begin_soon()
        return True

    def give_up(self) -> None:
        """Cancel the task where it waits now: its cancellation has been counted already."""
        if self._task is not None and self._task.cancel():
            self._task.uncancel()


class Entry(NamedTuple):
    """The entry of a rank into *rounds* at *at_s*; alarms that it would have set then are numbered from *place* on."""

    rounds: Rounds
    future: HoldFuture
    at_s: float
    place: int


@dataclass(slots=True)
class Moment:
    """An event, by time and number, and the entries that it led to. *place* precedes the alarms that it has set."""

    at_s: float
    number: int
    place: int
    entries: list[Entry] = field(default_factory=list)


class SuspendedRanks:
    """The ranks that are held, *entered*, by rank. *is_alone*: no message is leaving.

    *ahead_B*: the most bytes that one of them would have sent to another rank by now, before its last message.
    """

    def __init__(self, loop: SimLoop, begin_soon: Callable[[], object]) -> None:
        self._loop, self._begin_soon = loop, begin_soon
        self.entered: dict[int, Entry] = {}
        self.moments: list[Moment] = []
        self.is_alone, self.ahead_B = False, 0

    def add(self, rank: int, rounds: Rounds) -> asyncio.Future[int]:
        """Hold *rank* until the future is done, which has the number of rounds to skip."""
        clock = self._loop.clock
        if not self.moments:
            self.moments.append(Moment(clock._now, -1, 0))
        entry = Entry(rounds, HoldFuture(self._loop, self._begin_soon), clock._now, clock.keep_place())
        self.entered[rank] = entry
        self.ahead_B = max(self.ahead_B, sent_ahead_B(rounds))
        self.moments[-1].entries.append(entry)
        return entry.future

    def note(self, at_s: float, number: int) -> None:
        """Note an event that is about to come."""
        self.moments.append(Moment(at_s, number, self._loop.clock.keep_place()))

    def begin(self) -> None:
        """Let each rank begin when it entered, and go on until now. Called where no task runs."""
        loop, clock, numbers = self._loop, self._loop.clock, self._loop.clock.numbers
        with in_the_past(loop):
            clock._now = self.moments[0].at_s
            for moment, following in zip(self.moments, [*self.moments[1:], None], strict=True):
                run_until(loop, moment.at_s, moment.number)
                clock._now = moment.at_s
                for entry in moment.entries:
                    self._soon(clock.number_from, entry.place)
                    entry.future.set_result(0)
                    if entry.future.gives_up:
                        self._soon(entry.future.give_up)
                if following is None:
                    self._soon(clock.number_on, numbers)
                else:
                    self._soon(clock.number_from, following.place)
                loop.drain()

    def _soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._loop.call_soon(callback, *arguments, context=Context())


def resume(loop: SimLoop, entries: Sequence[tuple[float, Entry]], over: int) -> None:
    """Let ranks skip *over* rounds until their times, in this order.

    Where that is past, a rank only waits for a message until now.
    """
    clock, now_s = loop.clock, loop.clock._now
    with in_the_past(loop):
        for start_s, entry in entries:
            entry.future.begin_soon = None
            if start_s < now_s:
                clock._now = start_s
                entry.future.set_result(over)
                loop.drain()
    for start_s, entry in entries:
        if not entry.future.done():
            clock.alarm_at(start_s, entry.future.set_result, over)


class Beginning(Handle):
    """A ready callback that may raise. Futures in *args* are done afterwards, before all else that is ready."""

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        self.callback()
        for turn in self.args:
            answer_next(loop._ready, turn, None)  # type: ignore[attr-defined]
