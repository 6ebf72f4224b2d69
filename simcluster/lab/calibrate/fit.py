"""Fit a calibration's samples: first the path between two nodes, then each link. Arithmetic only.

A message of m bytes takes o_s + L + m / B + o_r: the sender's and the receiver's overhead, the latency and the
bandwidth of the path (LogGP; Alexandrov, Ionescu, Schauser and Scheiman 1995). All fits start from medians, so
occasional pauses of the machine have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from simcluster.lab.calibrate.samples import BURST_MESSAGES, FILL_MESSAGES, STREAM_MESSAGES, PairSamples

TINY_S = 1e-12
HALF = 0.67
"""If both directions together get less than this share of the bandwidth each, the link is half duplex."""

CLOSE = 0.03
"""A link within this share of a path's slowest bandwidth may be its bottleneck too."""


@dataclass(frozen=True)
class MeasuredValue:
    """A measured number with its range: quartiles of repetitions, or the extremes of several paths."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> MeasuredValue:
        return MeasuredValue(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class WayFit:
    """The fitted path between ranks *a* and *b*, assumed symmetric; overheads are a's, then b's.

    *startup_s* is the time of a message without its bytes, o_s + L + o_r. *misfit* is the share by which the largest
    single messages took longer than o_s + L + m / B + o_r. *both_ways* is each direction's share of the bandwidth when
    both are in use: near 1 for full duplex, 1/2 for half. *send_buffers_bytes* are lower bounds on the send buffers of
    both ends.
    """

    a: int
    b: int
    startup_s: MeasuredValue
    bandwidth_Bps: MeasuredValue
    send_overheads_s: tuple[MeasuredValue, MeasuredValue]
    recv_overheads_s: tuple[MeasuredValue, MeasuredValue]
    send_buffers_bytes: tuple[float, float]
    both_ways: MeasuredValue
    misfit: float

    @property
    def latency_s(self) -> float:
        """The latency of the path. A round trip has both nodes' overheads, and half of it is one start-up."""
        overheads_s = sum(value.value for value in (*self.send_overheads_s, *self.recv_overheads_s))
        return max(0.0, self.startup_s.value - overheads_s / 2)


def quartiles(samples: Sequence[float]) -> MeasuredValue:
    """Return the median with the quartiles."""
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return MeasuredValue(float(middle), float(low), float(high))


def fit_way(a: int, b: int, there: PairSamples, back: PairSamples) -> WayFit:
    """Fit the path between *a* and *b* from both ranks' samples: the lower one has all, the higher one only bursts.

    - o_s + L + o_r: half the round trip of empty messages.
    - B: the time that each further message of a stream of large ones adds.
    - both ways: the time per further message with equal traffic the other way, in the faster direction. The slower
      direction's acknowledgements may queue after data; only a half-duplex link slows it below HALF.
    - o_s: the caller's time to send an empty message, averaged over many, since some wait for the event loop.
    - o_r: the interval at which empty messages arrive when sent as fast as possible. It is limited by o_s: if sending
      takes longer than receiving, both appear equal.
    - the send buffer: the bytes of a stream that had not left when its last send returned.
    """
    halves_s = {size: quartiles([seconds / 2 for seconds in taken]) for size, taken in there["round"].items()}
    startup = halves_s[0]
    largest, streamed = max(there["stream"].items())
    single_s = halves_s[largest].value
    further_bytes = (STREAM_MESSAGES - 1) * largest
    # The first message of a stream takes as long as a single one; then the answer follows.
    bandwidth = quartiles([further_bytes / max(s - single_s - startup.value, TINY_S) for s in streamed])
    moving_s = largest / bandwidth.value
    together = zip(there["both"][largest], back["both"][largest], strict=True)
    sends = [quartiles([seconds / BURST_MESSAGES for seconds in samples["sends"][0]]) for samples in (there, back)]
    return WayFit(
        a,
        b,
        startup,
        bandwidth,
        (sends[0], sends[1]),
        (_receiving(back, startup.value), _receiving(there, startup.value)),
        (_ahead(there, bandwidth.value), _ahead(back, bandwidth.value)),
        quartiles([_both_ways((STREAM_MESSAGES - 1) * moving_s, ends) for ends in together]),
        single_s / (startup.value + moving_s) - 1,
    )


def _receiving(samples: PairSamples, startup_s: float) -> MeasuredValue:
    """Return the time that one more message of a burst adds, at the other end of *samples*."""
    return quartiles([max(0.0, seconds - 2 * startup_s) / (BURST_MESSAGES - 1) for seconds in samples["burst"][0]])


def _ahead(samples: PairSamples, bandwidth_Bps: float) -> float:
    """Return the bytes sent that cannot have left by then; 0 if the round filled no buffer.

    A pause of the machine only lengthens the sends, so the shortest one counts.
    """
    filled = [FILL_MESSAGES * size - bandwidth_Bps * min(seconds) for size, seconds in samples.get("fill", {}).items()]
    return max(0.0, *filled, 0.0)


def _both_ways(alone_s: float, together_s: tuple[float, float]) -> float:
    """Return each direction's share of the bandwidth; *together_s* is the time of each. 1 if too short to tell."""
    faster, slower = (min(1.0, alone_s / s) if alone_s > 0 and s > 0 else 1.0 for s in sorted(together_s))
    return slower if slower < HALF else faster


def spread_over_links(
    ways: Sequence[Sequence[int]], latencies_s: Sequence[float], expected_s: Sequence[float]
) -> list[float]:
    """Return the latency of every link, none negative, so that the links of each path sum to the path's latency.

    *ways[w]* are the links of path w, *expected_s[l]* is the given latency of link l. Least squares; where the paths do
    not determine the division among links, links stay as close to the given latencies as possible.
    """
    matrix = np.zeros((len(ways), len(expected_s)))
    for way, links in enumerate(ways):
        matrix[way, list(links)] = 1.0
    found = np.array(expected_s, dtype=float)
    free = list(range(len(expected_s)))
    while free:
        # Links that are not free are 0 by now: a negative latency is impossible.
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
    """Return, for every link, the paths that it may be the bottleneck of; none if another link is always slower.

    A link is at least as fast as the fastest path over it.
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
    """Return the bandwidth of the fastest path over each link; 0 without a path."""
    least_Bps = [0.0] * links
    for crossed, bandwidth_Bps in zip(ways, bandwidths_Bps, strict=True):
        for link in crossed:
            least_Bps[link] = max(least_Bps[link], bandwidth_Bps)
    return least_Bps


def middle(values: Sequence[float]) -> MeasuredValue:
    """Return the median with the extremes."""
    return MeasuredValue(median(values), min(values), max(values))
