"""Busy loops during a comparison: a background load, or loops at idle priority that keep cores
awake.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simcluster.lab.calibrate.measure import stolen_s

LOOPS = 4
"""The number of busy loops at normal priority: two per core of the reference machine."""

BUSY_LOOP = "while True: pass"
UNLESS_IDLE = ["chrt", "--idle", "0", "nice", "-n", "19"]
"""The command that runs a loop only while its core is idle.

The kernel counts the time as "nice".
"""


@contextmanager
def awake() -> Iterator[None]:
    """Keep every core awake until the end of the block, since cores of virtual machines wake up
    late.
    """
    with background_load(os.cpu_count() or 1, UNLESS_IDLE):
        yield


@contextmanager
def background_load(loops: int = LOOPS, priority: Sequence[str] = ()) -> Iterator[None]:
    """Run *loops* busy loops until the end of the block, or until this process ends."""
    command = ["setpriv", "--pdeathsig", "KILL", *priority, sys.executable, "-c", BUSY_LOOP]
    processes = [subprocess.Popen(command) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_shares(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, float]:
    """Return the shares of CPU time in use and stolen between two results of `cpu_times`."""
    used, stolen, total = (b - a for a, b in zip(before, after, strict=True))
    return (used / total, stolen / total) if total else (0.0, 0.0)


def cpu_times() -> tuple[float, float, float]:
    """Return (seconds in use, seconds stolen, all seconds) of all cores since the machine started.

    Loops that only keep cores awake do not count as use.
    """
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle = ticks[1] + ticks[3] + ticks[4]
    return (sum(ticks) - idle) * tick_s - stolen_s(), stolen_s(), sum(ticks) * tick_s
