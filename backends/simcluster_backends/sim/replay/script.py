"""A node that repeats a real node's record: when its callbacks run, and what reaches it in between.

A script waits for a message that has not been sent yet, whatever the clock says. If code and record
diverge, the script raises ReplayDiverged. A node's callbacks form one first-in, first-out queue,
here as on the real loop. So an event that is recorded by the number of callbacks before it is
replayed at exactly its original position.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from simcluster.errors import ENDED, ReplayDiverged
from simcluster.runs.event_order import WORDS, EventKind, EventOrder
from simcluster_backends.common.inbox import fail
from simcluster_backends.sim.loop.clock import Alarm

if TYPE_CHECKING:
    from simcluster_backends.sim.loop.callbacks import Handle, Timer
    from simcluster_backends.sim.loop.event_loop import SimTask
    from simcluster_backends.sim.replay.node import ReplayedNode


MOST_GUESSED = 1_000_000
"""The maximum number of callbacks of a node that was lost before it handed in its whole order."""


class Script:
    """The *order* of node *rank*, which decides when *ready* callbacks run. *play* runs one now.

    `node` and the `root` task are set later. `numbers` numbers the node's tasks; number 0 is the
    program.
    """

    node: ReplayedNode
    root: SimTask[Any]

    def __init__(self, rank: int, name: str, order: EventOrder, play: Callable[[Handle | Timer], None]) -> None:
        self.rank, self.name = rank, name
        self.ready: deque[Handle | Timer] = deque()  # first in, first out
        self.timers: dict[int, Timer] = {}
        self.asides: dict[int, asyncio.Future[Any]] = {}
        self.executed = 0
        self.now_s = 0.0
        self._broken: ReplayDiverged | None = None
        self._play = play
        self._order = order
        self._position = self._digests = self._reads = 0
        self._reasons = iter(order.answers.reasons)
        self.numbers = count()
        self._armed = count(1)

    # called by the loop

    def arm(self, timer: Timer) -> None:
        """Note that the node has set *timer*."""
        timer.alarm = Alarm(self.ready.append, timer)  # the record rings it, not the clock
        self.timers[next(self._armed)] = timer

    def read(self) -> float:
        """Return the time that the node's code read at this point of the real run.

        Raise ReplayDiverged if the code read the clock fewer times in the real run.
        """
        reads = self._order.answers.reads
        if self._reads == len(reads) and not self._order.whole:
            return reads[-1] if reads else self.now_s
        if self._reads == len(reads):
            self._broken = self.parted(f"it reads the clock more often than the {len(reads)} times recorded")
            raise self._broken
        self._reads += 1
        return reads[self._reads - 1]

    # called by the player of all nodes

    def advance(self) -> bool:
        """Advance as far as possible without other nodes; return whether there was progress.

        Raise ReplayDiverged if code and record diverge."""
        counts = self._order.events.counts
        begun = (self.executed, self._position)
        guessed = False
        while not self.root.done():
            due = counts[self._position] if self._position < len(counts) else None
            if due is not None and due <= self.executed:
                if due < self.executed:
                    raise self.parted(f"the record has {self.awaited} after {due} callbacks, but {self.executed} ran")
                if not self._apply():
                    break
            elif self.ready:
                self._run_next()
                if self._broken is not None:  # already raised, but the node's code may have caught it
                    raise self._broken
            elif due is None and not self._order.whole:
                if guessed or not self._guess():
                    break  # one guess per turn: guessing may never end
                guessed = True
            else:
                recorded = f"has {self.awaited} only after {due}" if due is not None else "ends"
                raise self.parted(f"nothing is left to do after {self.executed} callbacks, but the record {recorded}")
        if self.root.done() and self._order.whole:
            if self._position < len(self._order.events.kinds):
                raise self.parted(f"it has ended, but the record continues with {self.awaited}")
            if self.executed != self._order.callbacks:
                both = f"{self.executed} callbacks, the record after {self._order.callbacks}"
                raise self.parted(f"it ended after {both}")
        return guessed or (self.executed, self._position) != begun

    @property
    def open(self) -> bool:
        """Whether there is more to do, as far as the record is known."""
        return self._order.whole and not self.root.done()

    @property
    def awaited(self) -> str:
        """A description of the next event."""
        events = self._order.events
        if self._position == len(events.kinds):
            return "nothing more"
        return WORDS[EventKind(events.kinds[self._position])].format(events.numbers[self._position])

    @property
    def source(self) -> int:
        """The rank from which the node awaits a message: nothing else stops an open node."""
        return self._order.events.numbers[self._position]

    @property
    def due_s(self) -> float:
        """The time of the next event in the real run."""
        return self._order.events.times_s[self._position]

    @property
    def place(self) -> str:
        """A description of the node and its next event."""
        return f"rank {self.rank} ({self.name}), {self._event}"

    def parted(self, how: str) -> ReplayDiverged:
        """Return the error that says *how* code and record diverge at the current event."""
        return ReplayDiverged(self.rank, self.name, self._event, how)

    @property
    def _event(self) -> str:
        return f"event {self._position + 1}, step {self.node.recorder.record.steps}"

    def _run_next(self) -> None:
        if self.ready[0].cancelled():
            self.ready.popleft()
            return
        recorded = self._order.callbacks
        if recorded is not None and self.executed >= recorded:
            raise self.parted(f"it continues after the {recorded} callbacks recorded")
        if recorded is None and self.executed >= MOST_GUESSED:
            raise self.parted(f"it was lost, and without its record it does not end: {MOST_GUESSED} callbacks")
        self.executed += 1
        self._play(self.ready.popleft())

    def _apply(self) -> bool:
        """Apply the next event; return False if it needs a message that has not been sent yet."""
        events = self._order.events
        kind, number = EventKind(events.kinds[self._position]), events.numbers[self._position]
        node = self.node
        if kind is EventKind.MESSAGE:
            message = node.arrived(number, events.digests[self._digests])
            if message is None:
                return False
            self._digests += 1
            self._passed()
            node.inbox.put(message)
            return True
        self._passed()
        if kind is EventKind.ENDED:
            node.inbox.lose(number, ENDED)
        elif kind is EventKind.LOST:
            node.inbox.lose(number, next(self._reasons))
        elif kind is EventKind.LEFT:
            self._pending(node.sends, number).set_result(None)
        elif kind is EventKind.FAILED:
            fail(self._pending(node.sends, number), ConnectionResetError(next(self._reasons)))
        elif kind is EventKind.COMPUTED:
            node.complete(number)
        elif kind is EventKind.TIMER:
            self._fire(number)
        elif kind is EventKind.ASIDE:
            self._pending(self.asides, number).set_result(None)
        elif kind is EventKind.TOLD:
            node.recorder.told_to_leave = True
        else:
            self.root.cancel()
        return True

    def _guess(self) -> bool:
        """Apply a plausible event after a lost node's last recorded one; return whether one exists.

        The first candidate in a fixed order is applied. The checksums of the messages that other
        nodes received from this one tell whether the guess was right.
        """
        node = self.node
        waiting = {number: future for number, future in node.sends.items() if not future.done()}
        message = next((found for peer in node.streams if (found := node.arrived(peer)) is not None), None)
        if message is not None:
            node.inbox.put(message)
        elif pieces := [piece.number for piece in node.device if not piece.done.done()]:
            node.complete(pieces[0])
        elif waiting:
            node.sends.pop(min(waiting)).set_result(None)
        elif asides := [number for number, future in self.asides.items() if not future.done()]:
            self.asides.pop(asides[0]).set_result(None)
        elif timers := [number for number, timer in self.timers.items() if not timer.cancelled()]:
            self._fire(timers[0])
        else:
            return False
        return True

    def _passed(self) -> None:
        self.now_s = self._order.events.times_s[self._position]
        self._position += 1

    def _pending(self, futures: dict[int, asyncio.Future[Any]], number: int) -> asyncio.Future[Any]:
        future = futures.pop(number, None)
        if future is None or future.done():
            self._position -= 1
            raise self.parted(f"the record has {self.awaited}, but the node does not wait for it")
        return future

    def _fire(self, number: int) -> None:
        timer = self.timers.pop(number, None)
        if timer is None or timer.cancelled():
            self._position -= 1
            raise self.parted(f"the record has {self.awaited}, but the node has set none")
        self._play(timer)
