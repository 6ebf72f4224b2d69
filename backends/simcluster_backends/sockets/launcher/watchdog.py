"""Heartbeats to the members of a run, and the watchdog over their answers and their silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from simcluster_backends.common.watchdog import Watchdog
from simcluster_backends.sockets.launcher.member import NodeHandle
from simcluster_backends.sockets.launcher.settings import SocketOptions

STALL_WARNING_S = 30.0
"""A node that blocks its event loop for this long is named in the log, long before it ends the run."""

log = logging.getLogger("simcluster.sockets")


class Watch:
    """A heartbeat that calls *beat*, *on_silent* for a member silent for `dead_s`, and *give_up* with a reason.

    *expects*: whether a node is to join or rejoin for which the others may be waiting.

    From `start` on, the run is given up for one of four reasons, each with its option: nothing moves (`stuck_s`),
    things move but no work is done and nothing is recorded (`idle_s`), a node's event loop does not turn (`loop_s`), or
    an algorithm has not ended when its time is up (`limit_s`).
    """

    def __init__(
        self,
        members: Sequence[NodeHandle],
        options: SocketOptions,
        *,
        beat: Callable[[], None],
        on_silent: Callable[[NodeHandle], None],
        give_up: Callable[[str], None],
        expects: Callable[[], bool],
    ) -> None:
        self._members, self._options = members, options
        self._beat, self._on_silent, self._give_up, self._expects = beat, on_silent, give_up, expects
        self._loop = asyncio.get_running_loop()
        self._watchdog: Watchdog | None = None
        self._warned: set[int] = set()

    def start(self) -> None:
        """Start the watchdog; the run's clock is 0 now."""
        options = self._options
        self._watchdog = Watchdog(options.stuck_s, options.idle_s, options.limit_s, self._loop.time())

    async def run(self) -> None:
        interval_s = self._options.heartbeat_s
        last_s = self._loop.time()
        while True:
            await asyncio.sleep(interval_s)
            now_s = self._loop.time()
            slept = now_s - last_s > 2 * interval_s + 1.0
            last_s = now_s
            self._beat()
            if slept:  # this process itself did, so no node can be blamed for silence
                for member in self._members:
                    member.heard_s = now_s
                if self._watchdog is not None:
                    self._watchdog.forgive(now_s)
                continue
            for member in self._members:
                if member.connection is not None and now_s - member.heard_s > self._options.dead_s:
                    self._on_silent(member)
            if self._watchdog is not None:
                self._check_run(self._watchdog, now_s)

    def _check_run(self, watchdog: Watchdog, now_s: float) -> None:
        live = [member for member in self._members if not member.ended]
        running = [member.progress for member in live]
        everything = [member.progress for member in self._members]
        for reason in (
            watchdog.standstill(everything, running, now_s, expects=self._expects()),
            *(self._stalled(member) for member in live),
            watchdog.over_time(running, now_s),
        ):
            if reason:
                self._give_up(reason)

    def _stalled(self, member: NodeHandle) -> str:
        status = member.status
        if status is None or status.stalled_s < STALL_WARNING_S:
            self._warned.discard(member.rank)
        elif member.rank not in self._warned and not status.ended:
            self._warned.add(member.rank)
            log.warning("%s", member.waits_in_words)
        if status is None or status.stalled_s <= self._options.loop_s:
            return ""
        return f"{member.label} has not let go of its event loop for {self._options.loop_s:g} s (loop_s)"
