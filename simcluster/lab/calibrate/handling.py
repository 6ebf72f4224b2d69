"""Messages in a step cost more CPU time than messages in a burst, if nodes share the cores of one machine.

A burst finds the caches as its last message left them. In a step, the work between two messages has replaced what they
held, and an algorithm adds or copies what arrives. So the CPU time that the event loops spend on the messages of
rehearsed steps decides how much an overhead is. Arithmetic only.
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
    """Return by how much overheads are larger in rehearsed steps than in bursts: the median of rounds; 1 without any.

    *overheads_s* are each rank's, to send and to receive. The bytes of a message keep a core busy at either end, as in
    the simulator; what remains of the CPU time of all event loops are overheads.
    """
    bandwidths_Bps = {frozenset((way.a, way.b)): way.bandwidth_Bps.value for way in ways}
    handled_s: defaultdict[tuple[int, str, int], float] = defaultdict(float)  # by round, pattern and bytes
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
