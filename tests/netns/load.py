"""A defined background load: busy loops at normal priority, two for each core of the reference machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from simcluster.calibrate.measure import stolen_s

LOOPS = 4
BUSY_LOOP = "while True: pass"


@contextmanager
def background_load(loops: int = LOOPS) -> Iterator[None]:
    """Keep *loops* processes busy until the end of the block; they die with this process."""
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", BUSY_LOOP]
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
    """Return the seconds that all cores together were in use, were stolen, and had, since the machine started."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    idle = ticks[3] + ticks[4]
    return (sum(ticks) - idle) * tick_s - stolen_s(), stolen_s(), sum(ticks) * tick_s
