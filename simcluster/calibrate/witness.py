"""Witnesses of disturbances: delays of a node's event loop, and CPU time stolen by the host of a virtual machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PROBE_S = 0.01
STAT = Path("/proc/stat")
STEAL_COLUMN = 8


class Witness:
    """Watches a node while it measures. *now* is the run's clock; *sees_machine* is false if time is virtual."""

    def __init__(self, now: Callable[[], float], *, sees_machine: bool) -> None:
        self._now, self._sees_machine = now, sees_machine
        self._late_s = 0.0
        self._stolen_s = self._stolen_now_s()

    async def watch(self) -> None:
        """Wake up every PROBE_S, until cancelled, and keep the longest delay."""
        while True:
            due_s = self._now() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self._late_s = max(self._late_s, self._now() - due_s)

    def take(self) -> tuple[float, float]:
        """Return (longest delay, stolen CPU time) since the last call, in seconds."""
        late_s, self._late_s = self._late_s, 0.0
        before_s, self._stolen_s = self._stolen_s, self._stolen_now_s()
        return max(0.0, late_s), self._stolen_s - before_s

    def _stolen_now_s(self) -> float:
        return stolen_s() if self._sees_machine else 0.0


def stolen_s() -> float:
    """Return the CPU seconds stolen from this machine since it started, over all cores; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError), STAT.open(encoding="ascii") as file:
        return int(file.readline().split()[STEAL_COLUMN]) / os.sysconf("SC_CLK_TCK")
    return 0.0
