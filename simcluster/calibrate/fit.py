"""From samples to numbers: what the way between two nodes is like, then what each link must be like. Arithmetic only.

A message of m bytes takes o_s + L + m / B + o_r: the sender's and the receiver's overhead, the latency and the
bandwidth of the way (LogGP; Alexandrov, Ionescu, Schauser and Scheiman 1995). Everything starts from medians, so a
pause of the machine here and there changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from simcluster.calibrate.samples import BURST_MESSAGES, FILL_MESSAGES, STREAM_MESSAGES, PairSamples

TINY_S = 1e-12
HALF = 0.67
"""Both directions at once get less than this share of the bandwidth each: it is one medium."""

CLOSE = 0.03
"""A link within this much of a way's slowest one may be its bottleneck, too."""


@dataclass(frozen=True)
class Value:
    """A measured number, and between what it was found: quartiles of repetitions, or the extremes of several ways."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class WayFit:
    """What the way between ranks *a* and *b* is like, taken as alike in both directions; overheads are a's, then b's.

    *startup_s* is what a message takes beside its bytes, o_s + L + o_r. *misfit* is by how much the longest single
    messages took longer than o_s + L + m / B + o_r, as a share. *both_ways* is the share of the bandwidth that each
    direction has when both are used: near 1 on full duplex, 1/2 on half. *send_buffers_bytes* are what each end was rid
    of before it had left, at least.
    """

    a: int
    b: int
    startup_s: Value
    bandwidth_Bps: Value
    send_overheads_s: tuple[Value, Value]
    recv_overheads_s: tuple[Value, Value]
    send_buffers_bytes: tuple[float, float]
    both_ways: Value
    misfit: float

    @property
    def latency_s(self) -> float:
        """Of the way alone. A round has both nodes' overheads, and half of it is a start-up."""
        overheads_s = sum(value.value for value in (*self.send_overheads_s, *self.recv_overheads_s))
        return max(0.0, self.startup_s.value - overheads_s / 2)


def quartiles(samples: Sequence[float]) -> Value:
    """The median between the quartiles."""
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return Value(float(middle), float(low), float(high))


def fit_way(there: PairSamples, back: PairSamples) -> WayFit:
    """Reads off what two nodes measured with each other: the lower rank everything, the higher one bursts.

    - o_s + L + o_r: half a round of empty messages.
    - B: what each further message of a stream of large ones adds.
    - both ways: the time per further message while as many travel the other way, in the faster direction. The
      acknowledgements of the slower one may queue after data; only a half-duplex link slows that one below HALF.
    - o_s: what sending an empty message takes its caller; of many in a row, since some wait for the loop's turn.
    - o_r: how much apart empty messages come in that are sent as fast as can be. It is told no better than o_s allows:
      if sending takes longer than receiving, both are taken for equal.
    - the send buffer: of a stream, what had not left when its last send returned.
    """
    halves_s = {size: quartiles([seconds / 2 for seconds in taken]) for size, taken in there.round.items()}
    startup = halves_s[0]
    largest, streamed = max(there.stream.items())
    single_s = halves_s[largest].value
    further_bytes = (STREAM_MESSAGES - 1) * largest
    # The first message of a stream takes as long as a single one, and then there is the answer.
    bandwidth = quartiles([further_bytes / max(s - single_s - startup.value, TINY_S) for s in streamed])
    moving_s = largest / bandwidth.value
    both = [
        _both_ways((STREAM_MESSAGES - 1) * moving_s, ends)
        for ends in zip(there.both[largest], back.both[largest], strict=True)
    ]
    return WayFit(
        there.a,
        there.b,
        startup,
        bandwidth,
        (_sending(there), _sending(back)),
        (_receiving(back, startup.value), _receiving(there, startup.value)),
        (_ahead(there, bandwidth.value), _ahead(back, bandwidth.value)),
        quartiles(both),
        single_s / (startup.value + moving_s) - 1,
    )


def _sending(samples: PairSamples) -> Value:
    return quartiles([seconds / BURST_MESSAGES for seconds in samples.sends[0]])


def _receiving(samples: PairSamples, startup_s: float) -> Value:
    """What one more message of a burst adds, at the other end of *samples*."""
    gaps_s = [max(0.0, seconds - 2 * startup_s) / (BURST_MESSAGES - 1) for seconds in samples.burst[0]]
    return quartiles(gaps_s)


def _ahead(samples: PairSamples, bandwidth_Bps: float) -> float:
    """Bytes that were sent and cannot have left by then; 0 in a round that filled nothing.

    A pause of the machine makes the sends longer and never shorter, so the shortest tells.
    """
    filled = [FILL_MESSAGES * size - bandwidth_Bps * min(seconds) for size, seconds in samples.fill.items()]
    return max(0.0, *filled, 0.0)


def _both_ways(alone_s: float, together_s: tuple[float, float]) -> float:
    """Return the share of the bandwidth that each direction has; *together_s* is the time of each."""
    faster, slower = _share(alone_s, min(together_s)), _share(alone_s, max(together_s))
    return slower if slower < HALF else faster


def _share(alone_s: float, together_s: float) -> float:
    """Of the bandwidth, if what takes *alone_s* took *together_s*; all of it if messages are too short to tell."""
    return min(1.0, alone_s / together_s) if alone_s > 0 and together_s > 0 else 1.0


def spread_over_links(
    ways: Sequence[Sequence[int]], latencies_s: Sequence[float], expected_s: Sequence[float]
) -> list[float]:
    """The latency of every link, none negative, such that those of each way's links sum up to the way's.

    *ways[w]* are the links that way w crosses, *expected_s[l]* what link l is said to have. By least squares; where
    the ways do not say how a latency is divided among links, the links stay as close to what is expected as they can.
    """
    matrix = np.zeros((len(ways), len(expected_s)))
    for way, links in enumerate(ways):
        matrix[way, list(links)] = 1.0
    found = np.array(expected_s, dtype=float)
    free = list(range(len(expected_s)))
    while free:
        # What is not free is 0 by now: a link that would be negative helps nobody.
        rest = np.array(latencies_s) - matrix[:, free] @ found[free]
        step, *_ = np.linalg.lstsq(matrix[:, free], rest, rcond=None)
        found[free] += step
        negative = [link for link in free if found[link] < 0]
        if not negative:
            break
        found[negative] = 0.0
        free = [link for link in free if link not in negative]
        found[free] = np.array(expected_s, dtype=float)[free]
    return [float(max(0.0, latency_s)) for latency_s in found]


def bottlenecks(ways: Sequence[Sequence[int]], bandwidths_Bps: Sequence[float], links: int) -> list[list[int]]:
    """For every link, the ways whose slowest link it may be; none for a link that is always faster than another.

    A link is as fast as the fastest way over it, at least.
    """
    least_Bps = least_bandwidths(ways, bandwidths_Bps, links)
    telling: list[list[int]] = [[] for _ in range(links)]
    for way, crossed in enumerate(ways):
        slowest_Bps = min((least_Bps[link] for link in crossed), default=0.0)
        for link in crossed:
            if least_Bps[link] <= slowest_Bps * (1 + CLOSE):
                telling[link].append(way)
    return telling


def least_bandwidths(ways: Sequence[Sequence[int]], bandwidths_Bps: Sequence[float], links: int) -> list[float]:
    """That of the fastest way over each link; 0 where there is none."""
    least_Bps = [0.0] * links
    for crossed, bandwidth_Bps in zip(ways, bandwidths_Bps, strict=True):
        for link in crossed:
            least_Bps[link] = max(least_Bps[link], bandwidth_Bps)
    return least_Bps


def middle(values: Sequence[float]) -> Value:
    """The median between the extremes."""
    return Value(median(values), min(values), max(values))
