"""Busy loops during a comparison: a background load, or loops of idle priority that keep the cores awake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from simcluster.lab.calibrate.measure import stolen_s

LOOPS = 4
"""Busy loops at normal priority: two for each core of the reference machine."""

BUSY_LOOP = "while True: pass"
UNLESS_IDLE = ["chrt", "--idle", "0", "nice", "-n", "19"]
"""A core does this only if it would sleep. The kernel counts it as "nice"."""


@contextmanager
def awake() -> Iterator[None]:
    """Keep every core awake until the end of the block: those of a virtual machine that sleep are woken late."""
    with background_load(os.cpu_count() or 1, UNLESS_IDLE):
        yield


@contextmanager
def background_load(loops: int = LOOPS, priority: Sequence[str] = ()) -> Iterator[None]:
    """Keep *loops* processes busy until the end of the block; they die with this process."""
    command = ["setpriv", "--pdeathsig", "KILL", *priority, sys.executable, "-c", BUSY_LOOP]
    processes = [subprocess.Popen(command) for _ in range(loops)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_shares(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, float]:
    """Return which share of all CPU time was used, and which was stolen, between two `cpu_times`."""
    used, stolen, total = (b - a for a, b in zip(before, after, strict=True))
    return (used / total, stolen / total) if total else (0.0, 0.0)


def cpu_times() -> tuple[float, float, float]:
    """Return the seconds that all cores together were in use, were stolen, and had, since the machine started.

    What they do only to stay awake is no use.
    """
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle = ticks[1] + ticks[3] + ticks[4]
    return (sum(ticks) - idle) * tick_s - stolen_s(), stolen_s(), sum(ticks) * tick_s
