"""Timing two things against each other in one process: interleaved, medians, CPU time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

ROUNDS = 7


@dataclass(frozen=True)
class Ratio:
    """Seconds of CPU that *a* and *b* took, medians over the rounds, and the median of the paired ratios."""

    a_s: float
    b_s: float
    ratio: float


Work: TypeAlias = Callable[[], object]


def cpu_s(work: Work) -> float:
    """Seconds of CPU that this process spent on *work*."""
    started = time.process_time()
    work()
    return time.process_time() - started


def wall_s(work: Work) -> float:
    """Seconds that *work* took, which means something on an idle machine only."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compare(a: Work, b: Work, rounds: int = ROUNDS, clock: Callable[[Work], float] = cpu_s) -> Ratio:
    """Runs a, b, b, a, a, b, ... after one of each that does not count.

    CPU time of this process rather than wall time, where both sides are single-threaded and never sleep: on an idle
    core the two agree, and on a shared one only CPU time means anything.
    """
    a(), b()
    pairs = []
    for number in range(rounds):
        if number % 2:
            b_s, a_s = clock(b), clock(a)
        else:
            a_s, b_s = clock(a), clock(b)
        pairs.append((a_s, b_s))
    return Ratio(
        statistics.median(a_s for a_s, _ in pairs),
        statistics.median(b_s for _, b_s in pairs),
        statistics.median(a_s / b_s for a_s, b_s in pairs),
    )
