"""Ranks held before the first message of a schedule: they begin later, with the clock set back.

While ranks are held, others continue, but exchange no messages: see `ScheduleEntrants`. So nothing
depends on what the held ranks would have done, and they can do it later, at its original time.
They do it step by step, between the *moments*, the events that have happened meanwhile. An alarm
that is set late gets the number that it would have had, so events at the same time keep their
order.
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
    """The future of a held rank. If its task is cancelled, all held ranks begin first.

    *begin_soon* lets these ranks begin before any other ready callback. Without *begin_soon*, this
    is an ordinary future.
    """

    def __init__(self, loop: SimLoop, begin_soon: Callable[[], object]) -> None:
        super().__init__(loop=loop)
        self.gives_up = False
        self._task = asyncio.current_task(loop)
        self.begin_soon: Callable[[], object] | None = begin_soon

    def cancel(self, msg: Any | None = None) -> bool:
        if self.begin_soon is None or self.done():
            return super().cancel(msg)
        if not self.gives_up:
            self.gives_up = True
            self.begin_soon()
        return True

    def give_up(self) -> None:
        """Cancel the task where it waits now, without counting the cancellation again."""
        if self._task is not None and self._task.cancel():
            self._task.uncancel()


class Entry(NamedTuple):
    """The entry of a rank into *rounds* at *at_s*.

    Alarms that the rank would have set then are numbered from *place* on."""

    rounds: Rounds
    future: HoldFuture
    at_s: float
    place: int


@dataclass(slots=True)
class Moment:
    """An event, by time and number, and the entries that followed it.

    *place* precedes the numbers of the alarms that the event has set."""

    at_s: float
    number: int
    place: int
    entries: list[Entry] = field(default_factory=list)


class SuspendedRanks:
    """The held ranks. *entered* has their entries, by rank.

    *is_alone* says that no message is leaving. *ahead_B* is the maximum number of bytes that a held
    rank could have sent to another rank by now, without its last message.
    """

    def __init__(self, loop: SimLoop, begin_soon: Callable[[], object]) -> None:
        self._loop = loop
        self._begin_soon = begin_soon
        self.entered: dict[int, Entry] = {}
        self.moments: list[Moment] = []
        self.is_alone = False
        self.ahead_B = 0

    def add(self, rank: int, rounds: Rounds) -> asyncio.Future[int]:
        """Hold *rank* until the returned future is done, with the number of rounds to skip."""
        clock = self._loop.clock
        if not self.moments:
            self.moments.append(Moment(clock.now_s, -1, 0))
        entry = Entry(rounds, HoldFuture(self._loop, self._begin_soon), clock.now_s, clock.keep_place())
        self.entered[rank] = entry
        self.ahead_B = max(self.ahead_B, sent_ahead_B(rounds))
        self.moments[-1].entries.append(entry)
        return entry.future

    def note(self, at_s: float, number: int) -> None:
        """Note the event with this time and number, which is about to run."""
        self.moments.append(Moment(at_s, number, self._loop.clock.keep_place()))

    def begin(self) -> None:
        """Let each rank begin at the time of its entry, and continue until now.

        Call only while no task runs.
        """
        loop = self._loop
        clock = loop.clock
        numbers = clock.numbers
        with in_the_past(loop):
            clock.now_s = self.moments[0].at_s
            for moment, following in zip(self.moments, [*self.moments[1:], None], strict=True):
                run_until(loop, moment.at_s, moment.number)
                clock.now_s = moment.at_s
                for entry in moment.entries:
                    self._soon(clock.number_from, entry.place)
                    entry.future.set_result(0)
                    if entry.future.gives_up:
                        self._soon(entry.future.give_up)
                # Alarms that ranks set from now on precede those that the next moment has set.
                if following is None:
                    self._soon(clock.number_on, numbers)
                else:
                    self._soon(clock.number_from, following.place)
                loop.drain()

    def _soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self._loop.call_soon(callback, *arguments, context=Context())


def resume(loop: SimLoop, entries: Sequence[tuple[float, Entry]], over: int) -> None:
    """Let the ranks of *entries*, (time, entry), skip *over* rounds and continue at these times.

    They continue in the order of *entries*. A rank with a past time would only have waited for a
    message until now, so that wait begins at once, at its past time.
    """
    clock = loop.clock
    now_s = loop.clock.now_s
    with in_the_past(loop):
        for start_s, entry in entries:
            entry.future.begin_soon = None  # no longer held: a cancellation ends only this wait
            if start_s < now_s:
                clock.now_s = start_s
                entry.future.set_result(over)
                loop.drain()
    for start_s, entry in entries:
        if not entry.future.done():
            clock.alarm_at(start_s, entry.future.set_result, over)


class Beginning(Handle):
    """A ready callback that may raise. Tasks that await the futures *args* run right after it."""

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        self.callback()
        for turn in self.args:
            answer_next(loop._ready, turn, None)  # type: ignore[attr-defined]
