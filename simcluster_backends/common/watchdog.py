"""When to stop a run on real nodes: nothing moves, no work is done, or its time is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Progress(NamedTuple):
    """A node's progress.

    *moved* grows with any activity of the node, *done* with its work and records. *computing* counts unfinished pieces
    of work, *waits* describes what else its algorithm waits for, and *ended* says whether that has ended.
    """

    moved: int = 0
    done: int = 0
    computing: int = 0
    waits: Sequence[str] = ()
    ended: bool = False


class Limits(Protocol):
    """The options of a backend that end a run; *limit_s* is None for no limit."""

    @property
    def stuck_s(self) -> float: ...

    @property
    def idle_s(self) -> float: ...

    @property
    def limit_s(self) -> float | None: ...


class Watchdog:
    """Judge a run that began at *now_s*, by any clock. *nodes* are all that ever were, *live* those that still are."""

    def __init__(self, limits: Limits, now_s: float) -> None:
        self._limits = limits
        self._began_s = self._moved_s = self._done_s = now_s
        self._moved = self._done = -1

    def forgive(self, now_s: float) -> None:
        """Restart the timers at *now_s*: the watching process was itself asleep."""
        self._moved_s = self._done_s = now_s

    def standstill(
        self, nodes: Sequence[Progress], live: Sequence[Progress], now_s: float, *, expects: bool = False
    ) -> str:
        """Return why the run makes no progress, or "". A run that *expects* a node may wait for it.

        A run that polls, plays ping-pong or computes forever is idle; the evaluation at the end is not.
        """
        moved, done = sum(node.moved for node in nodes), sum(node.done for node in nodes)
        if moved != self._moved or expects or any(node.computing or not node.waits for node in live):
            self._moved, self._moved_s = moved, now_s
        if done != self._done or any(node.ended for node in live):
            self._done, self._done_s = done, now_s
        stuck_s, idle_s = self._limits.stuck_s, self._limits.idle_s
        if live and now_s - self._moved_s > stuck_s:
            return f"every node waits, and nothing has moved for {stuck_s:g} s (stuck_s)"
        if live and now_s - self._done_s > idle_s:
            return f"no work done and nothing recorded for {idle_s:g} s (idle_s)"
        return ""

    def over_time(self, live: Sequence[Progress], now_s: float) -> str:
        """Return that an algorithm has exceeded its time limit, or ""."""
        limit_s = self._limits.limit_s
        if limit_s is None or now_s - self._began_s <= limit_s or all(node.ended for node in live):
            return ""
        return f"the run did not finish within {limit_s:g} s (limit_s)"
