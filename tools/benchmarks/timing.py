"""Comparisons of the CPU times of two functions in one process: interleaved calls, and medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

ROUNDS = 7


@dataclass(frozen=True)
class Ratio:
    """The median seconds of *a* and *b* over all rounds, and the median of the ratios a / b."""

    a_s: float
    b_s: float
    ratio: float


Work: TypeAlias = Callable[[], object]


def cpu_s(work: Work) -> float:
    """Return the CPU seconds that this process spends on *work*."""
    started = time.process_time()
    work()
    return time.process_time() - started


def wall_s(work: Work) -> float:
    """Return the wall seconds of *work*, which are meaningful only on an idle machine."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def compare(a: Work, b: Work, rounds: int = ROUNDS, clock: Callable[[Work], float] = cpu_s) -> Ratio:
    """Compare *a* and *b* in calls a, b, b, a, a, b, ... after one warm-up call of each.

    By default, the clock is the CPU time of this process, for work in one thread that never sleeps.
    On an idle core this agrees with wall time; on a shared core only CPU time is meaningful.
    """
    a()
    b()
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
