"""Heartbeats to the members of a run, and the watchdog of their progress and silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simcluster_backends.common.watchdog import Watchdog
from simcluster_backends.sockets.launcher.node_handle import NodeHandle
from simcluster_backends.sockets.launcher.settings import SocketOptions

STALL_WARNING_S = 30.0
"""The time after which a node's blocked event loop is logged, long before `loop_s` ends the run."""

log = logging.getLogger("simcluster.sockets")


@dataclass
class Watch:
    """A periodic check of all *members*, which also sends heartbeats, with *beat*.

    *on_silent* is called with a member that has been silent for `dead_s`. *expects* returns whether
    a node is to join or rejoin, since the others may be waiting for it. After `start`, *give_up* is
    called with a reason if nothing moves for `stuck_s`, if no work is done and nothing is recorded
    for `idle_s`, if a node's event loop does not turn for `loop_s`, or if an algorithm still runs
    after `limit_s`.
    """

    members: Sequence[NodeHandle]
    options: SocketOptions
    beat: Callable[[], None]
    on_silent: Callable[[NodeHandle], None]
    give_up: Callable[[str], None]
    expects: Callable[[], bool]

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._watchdog: Watchdog | None = None
        self._warned: set[int] = set()

    def start(self) -> None:
        """Start the watchdog; the run's clock is 0 now."""
        options = self.options
        self._watchdog = Watchdog(options.stuck_s, options.idle_s, options.limit_s, self._loop.time())

    async def run(self) -> None:
        interval_s = self.options.heartbeat_s
        last_s = self._loop.time()
        while True:
            await asyncio.sleep(interval_s)
            now_s = self._loop.time()
            slept = now_s - last_s > 2 * interval_s + 1.0
            last_s = now_s
            self.beat()
            if slept:  # this process itself was asleep, so the nodes' silence means nothing
                for member in self.members:
                    member.heard_s = now_s
                if self._watchdog is not None:
                    self._watchdog.forgive(now_s)
                continue
            for member in self.members:
                if member.connection is not None and now_s - member.heard_s > self.options.dead_s:
                    self.on_silent(member)
            if self._watchdog is not None:
                self._check_run(self._watchdog, now_s)

    def _check_run(self, watchdog: Watchdog, now_s: float) -> None:
        live = [member for member in self.members if not member.ended]
        running = [member.progress for member in live]
        everything = [member.progress for member in self.members]
        for reason in (
            watchdog.standstill(everything, running, now_s, expects=self.expects()),
            *(self._stalled(member) for member in live),
            watchdog.over_time(running, now_s),
        ):
            if reason:
                self.give_up(reason)

    def _stalled(self, member: NodeHandle) -> str:
        status = member.status
        if status is None or status.stalled_s < STALL_WARNING_S:
            self._warned.discard(member.rank)
        elif member.rank not in self._warned and not status.ended:
            self._warned.add(member.rank)
            log.warning("%s", member.waits_in_words)
        if status is None or status.stalled_s <= self.options.loop_s:
            return ""
        return f"{member.label} has not let go of its event loop for {self.options.loop_s:g} s (loop_s)"
