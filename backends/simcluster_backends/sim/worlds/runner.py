"""Run worlds as SimPy processes on the clock of a simulated cluster, within limits.

Limits count events and lines of code, not seconds, so that a run that fails fails everywhere alike.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from simcluster.errors import ENDED, UsageError, WorldFailed
from simcluster.process.generators import RANKS, of_rank
from simcluster.process.own_frames import is_own, original
from simcluster.rng import seed_sequence
from simcluster_backends.sim.loop.clock import Endless
from simcluster_backends.sim.loop.event_loop import LoopDrained
from simcluster_backends.sim.worlds.acts import WorldActs
from simcluster_backends.sim.worlds.handles import SimClusterHandle

if TYPE_CHECKING:
    import numpy as np
    from simpy.events import Event

    from simcluster.worlds import PlannedWorld
    from simcluster_backends.sim.cluster import SimCluster
    from simcluster_backends.sim.faults import SimFaults

LINES_LIMIT = 5_000_000
"""Limit on the lines of its own code that a world runs from one yield to the next: some seconds."""

EVENTS_LIMIT = 100_000
"""Limit on the events of worlds at one instant, and on those without which no node can go on."""

RESTARTS_LIMIT = 10_000
"""Limit on the restarts by worlds since a node has last recorded a new highest step, or has ended."""


class WorldStalled(BaseException):
    """A world let nothing else happen. No handler of a world for Exception catches it."""


class WorldRunner:
    """The *worlds* of one run of *cluster*, which act through *faults*."""

    def __init__(self, worlds: Sequence[PlannedWorld], cluster: SimCluster, faults: SimFaults) -> None:
        self._worlds = worlds
        self._cluster = cluster
        self._generators: Any = None  # the global generators, as the worlds' own draws have left them
        self._turns = self._idle_events = 0  # events of worlds since a node's last turn
        self._now_s = -1.0
        self._events_now = 0  # events of worlds at this instant
        self._acts = [WorldActs(world.name, cluster, faults) for world in worlds]
        self._restarts = self._vain_restarts_from = 0  # all restarts, and those before the last progress
        self._progress = (0, 0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Begin all worlds before any node begins; within the block, they run on the clock."""
        clock, seed = self._cluster.loop.clock, self._cluster.seed
        streams: dict[str, np.random.Generator] = {}
        with ExitStack() as stack:
            if self._worlds:
                stack.enter_context(RANKS.own(seed_sequence(seed, "world"), lambda *_: None))
                self._generators = of_rank.get()
                of_rank.set(None)  # nodes that begin from here are given their own
                clock.handle = self._handle
            for world, acts in zip(self._worlds, self._acts, strict=True):
                clock.process(world.begun(clock, SimClusterHandle(acts, streams)))
            for _ in self._worlds:
                clock.step()  # SimPy's own event begins a process, before anything else at this instant
            yield

    def _handle(self, event: Event) -> None:
        RANKS.enter(self._generators)
        clock = self._cluster.loop.clock
        try:
            with _lines_counted():
                clock.happen(event)
            self._events_now = self._events_now + 1 if clock.now_s == self._now_s else 1
            self._now_s = clock.now_s
            if self._events_now > EVENTS_LIMIT:
                raise WorldStalled(f"{EVENTS_LIMIT:,} events at {clock.now_s:g} s, and no time passes")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _failed(error, clock.resumed) from error
        self._check_restarts()
        self._check_idle()

    def _check_restarts(self) -> None:
        """Raise Endless if worlds restart nodes again and again before any has got further than before."""
        restarts = sum(acts.restarts for acts in self._acts)
        if restarts == self._restarts:
            return
        self._restarts = restarts
        ended = sum(departure.reason == ENDED for departure in self._cluster.membership.departed.values())
        progress = (max(member.recorder.step for member in self._cluster.members), ended)
        if progress != self._progress:
            self._progress, self._vain_restarts_from = progress, restarts
        elif restarts - self._vain_restarts_from >= RESTARTS_LIMIT:
            raise Endless(f"no new step and no end of a node in {RESTARTS_LIMIT:,} restarts by the world")

    def _check_idle(self) -> None:
        """Raise LoopDrained if nothing but worlds has gone on for long, and no alarm of a node is set."""
        loop = self._cluster.loop
        self._idle_events = self._idle_events + 1 if loop.turns == self._turns else 1
        self._turns = loop.turns
        if self._idle_events > EVENTS_LIMIT:
            self._idle_events = 0
            loop.clock.settle_now()  # it sets the alarms of messages that may leave again
            if not loop.clock.has_alarm():
                raise LoopDrained(f"no node has gone on in {EVENTS_LIMIT:,} events of the world")


def _failed(error: BaseException, resumed: Generator[Event, Any, Any] | None) -> WorldFailed:
    """Return the error of a run whose world raised *error*; its process *resumed* ran last."""
    frames = _frames_of(error) or list(traceback.StackSummary.extract(_waiting(resumed), lookup_lines=True))
    place = f"{frames[-1].filename}:{frames[-1].lineno} ({frames[-1].name})" if frames else "an unknown place"
    said = f"{'' if isinstance(error, UsageError) else f'{type(error).__name__}: '}{error}"
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames), said]
    return WorldFailed(original(place), original("".join(lines)))


def _frames_of(error: BaseException | None) -> list[traceback.FrameSummary]:
    """Return the frames in user code, outermost first: of each process that *error* has passed through."""
    found: list[traceback.FrameSummary] = []
    while error is not None:
        found += [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
        # SimPy hands a copy of the error to the process that waits for the failed one; and Python
        # makes a RuntimeError of a generator's StopIteration.
        cause = error.__cause__
        is_copy = type(cause) is type(error) and cause.args == error.args
        error = cause if is_copy or isinstance(cause, StopIteration) else None
    return found


def _waiting(process: Generator[Event, Any, Any] | None) -> Iterator[tuple[FrameType, int]]:
    frame = process.gi_frame if isinstance(process, GeneratorType) else None
    if frame is not None:
        yield frame, frame.f_lineno


_is_own = cache(is_own)


@contextmanager
def _lines_counted() -> Iterator[None]:
    """Raise WorldStalled within the block when it has run LINES_LIMIT lines of user code.

    Do nothing under a debugger, which traces lines itself.
    """
    left = LINES_LIMIT

    def enter(frame: FrameType, _: str, __: object) -> Any:
        return count if _is_own(frame.f_code.co_filename) else None

    def count(frame: FrameType, what: str, _: object) -> Any:
        nonlocal left
        left -= what == "line"
        if left < 0:
            raise WorldStalled(f"{LINES_LIMIT:,} lines without a yield")
        return count

    if sys.gettrace() is not None:
        yield
        return
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(None)
