"""Watches over the members of a run: who is silent, whether anything still moves, and whether it is time to end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from simcluster_backends.sockets.launcher.member import Member
from simcluster_backends.sockets.launcher.settings import Options

STALL_WARNING_S = 30.0
"""After which a node that does not let go of its event loop is named in the log, long before the run ends for it."""

log = logging.getLogger("simcluster.sockets")


class Watch:
    """Calls *beat* at every heartbeat, *on_silent* for a member not heard of for `dead_s`, *give_up* with the reason.

    *expects*: whether somebody is to come (back) of whom the others may be waiting for something.

    From `start` on a run is given up for one of four reasons, each with an option of its own: nothing moves
    (`stuck_s`), things move but no work is done and nothing is recorded (`idle_s`), a node's event loop does not turn
    (`loop_s`), or an algorithm has not ended when its time is up (`limit_s`).
    """

    def __init__(
        self,
        members: Sequence[Member],
        options: Options,
        *,
        beat: Callable[[], None],
        on_silent: Callable[[Member], None],
        give_up: Callable[[str], None],
        expects: Callable[[], bool],
    ) -> None:
        self._members, self._options = members, options
        self._beat, self._on_silent, self._give_up, self._expects = beat, on_silent, give_up, expects
        self._loop = asyncio.get_running_loop()
        self._started_s: float | None = None
        self._moved, self._moved_s = -1, 0.0
        self._done, self._done_s = -1, 0.0
        self._warned: set[int] = set()

    def start(self) -> None:
        """The run's clock is 0 now."""
        self._started_s = self._moved_s = self._done_s = self._loop.time()

    async def run(self) -> None:
        """Until it is cancelled."""
        interval_s = self._options.heartbeat_s
        last_s = self._loop.time()
        while True:
            await asyncio.sleep(interval_s)
            now_s = self._loop.time()
            slept = now_s - last_s > 2 * interval_s + 1.0
            last_s = now_s
            self._beat()
            if slept:
                self._forgive(now_s)
                continue
            for member in self._members:
                if member.connection is not None and now_s - member.heard_s > self._options.dead_s:
                    self._on_silent(member)
            if self._started_s is not None:
                self._check_run(now_s, now_s - self._started_s)

    def _forgive(self, now_s: float) -> None:
        """This process itself slept, so no node can be blamed for silence."""
        for member in self._members:
            member.heard_s = now_s
        self._moved_s = self._done_s = now_s

    def _check_run(self, now_s: float, elapsed_s: float) -> None:
        options, live = self._options, [member for member in self._members if not member.ended]
        running = [member for member in live if not member.algorithm_ended]
        for reason in (
            self._stuck(live, now_s),
            self._idle(live, now_s),
            *(self._stalled(member) for member in live),
        ):
            if reason:
                self._give_up(reason)
        if options.limit_s is not None and elapsed_s > options.limit_s and running:
            self._give_up(f"the run did not finish within {options.limit_s:g} s (limit_s)")

    def _stuck(self, live: Sequence[Member], now_s: float) -> str:
        moved = sum(member.status.moved for member in self._members if member.status)
        if moved != self._moved or not all(member.waits for member in live) or self._expects():
            self._moved, self._moved_s = moved, now_s
        elif live and now_s - self._moved_s > self._options.stuck_s:
            return f"every node waits, and nothing has moved for {self._options.stuck_s:g} s (stuck_s)"
        return ""

    def _idle(self, live: Sequence[Member], now_s: float) -> str:
        """Polling or ping-pong for ever, or a piece of work without an end. Evaluating, at the end, is none of them."""
        done = sum(member.status.done for member in self._members if member.status)
        if done != self._done or any(member.algorithm_ended for member in live):
            self._done, self._done_s = done, now_s
        elif live and now_s - self._done_s > self._options.idle_s:
            return f"no work done and nothing recorded for {self._options.idle_s:g} s (idle_s)"
        return ""

    def _stalled(self, member: Member) -> str:
        status = member.status
        if status is None or status.stalled_s < STALL_WARNING_S:
            self._warned.discard(member.rank)
        elif member.rank not in self._warned and not status.ended:
            self._warned.add(member.rank)
            log.warning("%s", member.waits_in_words)
        if status is None or status.stalled_s <= self._options.loop_s:
            return ""
        return f"{member.label} has not let go of its event loop for {self._options.loop_s:g} s (loop_s)"
