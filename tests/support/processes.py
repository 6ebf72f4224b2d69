"""Processes in the order in which they began."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import psutil


def by_age(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return *processes*, the oldest first.

    Process numbers start over at a limit, and several forks share a tick of the clock: within a tick, the numbers
    count from behind their widest gap.
    """
    found: list[psutil.Process] = []
    ticks: dict[float, list[psutil.Process]] = {}
    for process in processes:
        ticks.setdefault(process.create_time(), []).append(process)
    for tick in sorted(ticks):
        alike = sorted(ticks[tick], key=lambda process: process.pid)
        gaps = [after.pid - before.pid for before, after in pairwise(alike)]
        first = gaps.index(max(gaps)) + 1 if gaps and max(gaps) > alike[-1].pid // 2 else 0
        found += alike[first:] + alike[:first]
    return found


def forked_nodes(count: int) -> list[psutil.Process]:
    """Return the processes of this process's run by rank, which its fork server forked; none if fewer than *count*
    are left.
    """
    nodes = by_age(node for server in psutil.Process().children() for node in server.children())
    return nodes[-count:] if len(nodes) >= count else []
