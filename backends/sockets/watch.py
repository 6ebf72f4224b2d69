"""Watches over the members of a run: who is silent, and whether anything still moves.

This file knows heartbeats and patience. It must not know what is done about a node that is silent, or a run
that is stuck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from backends.sockets.member import Member
from backends.sockets.settings import Options


class Watch:
    """Calls *beat* at every heartbeat, *on_silent* for a member not heard of for `dead_s`, *on_stuck* when
    all wait.

    All wait when every member that has not ended says that it waits and computes nothing, and no member has
    made any progress for `stuck_s`. That is looked for from `look_for_progress` on.
    """

    def __init__(
        self,
        members: Sequence[Member],
        options: Options,
        *,
        beat: Callable[[], None],
        on_silent: Callable[[Member], None],
        on_stuck: Callable[[], None],
    ) -> None:
        self._members, self._options = members, options
        self._beat, self._on_silent, self._on_stuck = beat, on_silent, on_stuck
        self._loop = asyncio.get_running_loop()
        self._still_since_s: float | None = None
        self._still_at = -1

    def look_for_progress(self) -> None:
        self._still_since_s = self._loop.time()

    async def run(self) -> None:
        """Until it is cancelled."""
        interval_s = self._options.heartbeat_s
        last_s = self._loop.time()
        while True:
            await asyncio.sleep(interval_s)
            now_s = self._loop.time()
            if now_s - last_s > 2 * interval_s + 1.0:
                self._forgive(now_s)
            last_s = now_s
            self._beat()
            for member in self._members:
                if member.connection is not None and now_s - member.heard_s > self._options.dead_s:
                    self._on_silent(member)
            if self._still_since_s is not None:
                self._check_progress(now_s)

    def _forgive(self, now_s: float) -> None:
        """This process itself slept, so nobody else can be blamed for silence."""
        for member in self._members:
            member.heard_s = now_s
        if self._still_since_s is not None:
            self._still_since_s = now_s

    def _check_progress(self, now_s: float) -> None:
        assert self._still_since_s is not None
        live = [member for member in self._members if not member.ended]
        moved = sum(member.status.progress for member in self._members if member.status)
        if moved != self._still_at or not all(member.waits for member in live):
            self._still_since_s, self._still_at = now_s, moved
        elif live and now_s - self._still_since_s > self._options.stuck_s:
            self._on_stuck()
