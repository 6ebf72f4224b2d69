"""Decide when to stop a run on real nodes: nothing moves, no work is done, or its time is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class NodeProgress(NamedTuple):
    """A node's progress: *moved* grows with any activity, *done* with finished work and records.

    *computing* counts unfinished pieces of work. *waits* describes what else the algorithm waits
    for. *ended* is whether the algorithm has ended.
    """

    moved: int = 0
    done: int = 0
    computing: int = 0
    waits: Sequence[str] = ()
    ended: bool = False


class Watchdog:
    """A monitor of the progress of a run that began at *now_s*, on any clock in seconds.

    *stuck_s*, *idle_s* and *limit_s* are fields of NodeOptions; *limit_s* may be None, for no
    limit. In the methods, *nodes* has all nodes that ever took part, *live* those that still do.
    """

    def __init__(self, stuck_s: float, idle_s: float, limit_s: float | None, now_s: float) -> None:
        self._stuck_s = stuck_s
        self._idle_s = idle_s
        self._limit_s = limit_s
        self._began_s = self._moved_s = self._done_s = now_s
        self._moved = self._done = -1

    def forgive(self, now_s: float) -> None:
        """Restart the timers at *now_s*, because the watching process was itself suspended."""
        self._moved_s = self._done_s = now_s

    def standstill(
        self, nodes: Sequence[NodeProgress], live: Sequence[NodeProgress], now_s: float, *, expects: bool = False
    ) -> str:
        """Return the reason to end a run without progress, or "".

        A run that *expects* a node to join may wait for that node. A run that polls, passes
        messages around or computes forever is idle. A run that evaluates after its end is not.
        """
        moved, done = sum(node.moved for node in nodes), sum(node.done for node in nodes)
        if moved != self._moved or expects or any(node.computing or not node.waits for node in live):
            self._moved, self._moved_s = moved, now_s
        if done != self._done or any(node.ended for node in live):
            self._done, self._done_s = done, now_s
        if live and now_s - self._moved_s > self._stuck_s:
            return f"every node waits, and nothing has moved for {self._stuck_s:g} s (stuck_s)"
        if live and now_s - self._done_s > self._idle_s:
            return f"no work done and nothing recorded for {self._idle_s:g} s (idle_s)"
        return ""

    def over_time(self, live: Sequence[NodeProgress], now_s: float) -> str:
        """Return a message if an algorithm has exceeded the limit *limit_s*, or else ""."""
        limit_s = self._limit_s
        if limit_s is None or now_s - self._began_s <= limit_s or all(node.ended for node in live):
            return ""
        return f"the run did not finish within {limit_s:g} s (limit_s)"
