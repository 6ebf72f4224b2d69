"""Scale message overheads from bursts to training steps, if nodes share the cores of one machine.

There, a message in a step costs more CPU time than a message in a burst. In a burst, the caches
still hold what the previous message used. In a step, the work between two messages evicts it, and
an algorithm adds or copies each tensor that arrives. So overheads are scaled to the CPU time that
event loops spend on the messages of rehearsed steps. This module only computes: it measures
nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from simcluster.lab.calibrate.fit import MeasuredValue, WayFit
from simcluster.lab.calibrate.rehearsal import messages_of
from simcluster.lab.calibrate.samples import HANDLED, SampleRow


def factor_of_handling(
    rows: Sequence[SampleRow],
    ways: Sequence[WayFit],
    overheads_s: Sequence[tuple[MeasuredValue | None, MeasuredValue | None]],
) -> float:
    """Return the ratio of overheads in rehearsed steps to overheads in bursts.

    The ratio is the median over rounds, or 1 if no messages were rehearsed. *overheads_s* has
    (send, receive) by rank. As in the simulator, copying a message's bytes keeps a core busy at
    both ends; the rest of the event loops' CPU time is overhead.
    """
    bandwidths_Bps = {frozenset((way.a, way.b)): way.bandwidth_Bps.value for way in ways}
    handled_s: defaultdict[tuple[int, str, int], float] = defaultdict(float)  # (round, pattern, bytes) -> CPU seconds
    for row in rows:
        what, pattern, size_bytes = row.parts
        if what == HANDLED:
            handled_s[row.number, pattern, size_bytes] += row.seconds
    factors = []
    for (_, pattern, size_bytes), spent_s in handled_s.items():
        burst_s = moving_s = 0.0
        for source, target, count, each_bytes in messages_of(pattern, len(overheads_s), size_bytes):
            send, receive = overheads_s[source][0], overheads_s[target][1]
            burst_s += count * sum(overhead.value for overhead in (send, receive) if overhead is not None)
            moving_s += count * 2 * each_bytes / bandwidths_Bps[frozenset((source, target))]
        if burst_s > 0:
            factors.append(max(0.0, spent_s - moving_s) / burst_s)
    return median(factors) if factors else 1.0
