"""Fit a calibration's samples: first the path between each pair of nodes, then each link.

A message of m bytes takes o_s + L + m / B + o_r, where o_s and o_r are the sender's and the
receiver's overhead, L is the path's latency and B its bandwidth (LogGP; Alexandrov, Ionescu,
Schauser and Scheiman 1995). All fits start from medians, so occasional pauses of the machine have
no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from simcluster.lab.calibrate.samples import BURST_MESSAGES, FILL_MESSAGES, STREAM_MESSAGES, PairSamples

TINY_S = 1e-12
"""Lower bound on a measured difference before a division: noise can make it 0 or negative."""

HALF = 0.67
"""A half-duplex link gives each direction less than this share when both are in use."""

CLOSE = 0.03
"""A link may limit a path if its bandwidth is within this share of the path's slowest link."""


@dataclass(frozen=True)
class MeasuredValue:
    """A measured number with its range: the quartiles of repetitions, or the extremes of several
    paths.
    """

    value: float
    low: float
    high: float

    def times(self, factor: float) -> MeasuredValue:
        """Return this value, with its range, multiplied by *factor*."""
        return MeasuredValue(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class WayFit:
    """The fitted path between ranks *a* and *b*, assumed symmetric. Pairs of values are (a's, b's).

    *startup_s* is the time of a message without its bytes, o_s + L + o_r. *misfit* is the share by
    which single messages of the largest size took longer than the model's o_s + L + m / B + o_r.
    *both_ways* is each direction's share of the bandwidth when both are in use: near 1 for full
    duplex, 1/2 for half. *send_buffers_bytes* are lower bounds on the send buffers of both ends.
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
        """The latency of the path: half a round trip, minus half of the overheads of both nodes."""
        overheads_s = sum(value.value for value in (*self.send_overheads_s, *self.recv_overheads_s))
        return max(0.0, self.startup_s.value - overheads_s / 2)


def quartiles(samples: Sequence[float]) -> MeasuredValue:
    """Return the median of *samples* with their quartiles."""
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return MeasuredValue(float(middle), float(low), float(high))


def fit_way(a: int, b: int, there: PairSamples, back: PairSamples) -> WayFit:
    """Fit the path between *a* and *b* from both ranks' samples.

    The lower rank took all samples of the pair; the higher rank took only bursts.

    - o_s + L + o_r: half the round trip of empty messages.
    - B: the time that each further message adds to a stream of large ones.
    - both ways: the time per further message while equal traffic flows the other way. The faster
      direction counts, since the slower one's acknowledgements may queue after data. The slower one
      counts if its share is below HALF, which occurs only on a half-duplex link.
    - o_s: the caller's time to send an empty message, averaged over many, since some wait for the
      event loop.
    - o_r: the interval at which empty messages arrive when sent as fast as possible. It is limited
      by o_s: if sending takes longer than receiving, both appear equal.
    - the send buffer: the bytes of a stream that had not left when its last send returned.
    """
    halves_s = {size: quartiles([seconds / 2 for seconds in taken]) for size, taken in there["round"].items()}
    startup = halves_s[0]
    largest, streamed = max(there["stream"].items())
    single_s = halves_s[largest].value
    further_bytes = (STREAM_MESSAGES - 1) * largest
    # Leave out the first message of a stream, which takes as long as a single one, and the answer
    # to the last.
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
    """Return the receive overhead of the peer: the time that one more message adds to a burst."""
    return quartiles([max(0.0, seconds - 2 * startup_s) / (BURST_MESSAGES - 1) for seconds in samples["burst"][0]])


def _ahead(samples: PairSamples, bandwidth_Bps: float) -> float:
    """Return the bytes still in the send buffer after the last send; 0 if no buffer was filled.

    A pause of the machine only lengthens the sends, so the shortest time counts.
    """
    filled = [FILL_MESSAGES * size - bandwidth_Bps * min(seconds) for size, seconds in samples.get("fill", {}).items()]
    return max(0.0, *filled, 0.0)


def _both_ways(alone_s: float, together_s: tuple[float, float]) -> float:
    """Return each direction's share of the bandwidth when both are in use.

    *alone_s* is the time of one direction alone, *together_s* that of each direction with both in
    use. The share is 1 if a time is too short to tell.
    """
    faster, slower = (min(1.0, alone_s / s) if alone_s > 0 and s > 0 else 1.0 for s in sorted(together_s))
    return slower if slower < HALF else faster


def spread_over_links(
    ways: Sequence[Sequence[int]], latencies_s: Sequence[float], expected_s: Sequence[float]
) -> list[float]:
    """Return a latency for every link, such that those along a path add up to the path's latency.

    No latency is negative. *ways[w]* are the links of path w, *expected_s[l]* is the latency of
    link l in the topology. The solution is by least squares; if the paths do not determine how
    links divide a latency, links stay as close to *expected_s* as possible.
    """
    matrix = np.zeros((len(ways), len(expected_s)))
    for way, links in enumerate(ways):
        matrix[way, list(links)] = 1.0
    found = np.array(expected_s, dtype=float)
    free = list(range(len(expected_s)))
    while free:
        # Active-set method: fix links with a negative latency at 0, and solve for the others again.
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


def bottlenecks(ways: Sequence[Sequence[int]], least_Bps: Sequence[float]) -> list[list[int]]:
    """Return, for every link, the paths whose bandwidth it may limit.

    A link limits no path if each path over it has a slower link. *least_Bps* is from
    `least_bandwidths`: a link is at least as fast as the fastest path over it.
    """
    telling: list[list[int]] = [[] for _ in least_Bps]
    for way, crossed in enumerate(ways):
        slowest_Bps = min((least_Bps[link] for link in crossed), default=0.0)
        for link in crossed:
            if least_Bps[link] <= slowest_Bps * (1 + CLOSE):
                telling[link].append(way)
    return telling


def least_bandwidths(ways: Sequence[Sequence[int]], bandwidths_Bps: Sequence[float], links: int) -> list[float]:
    """Return the bandwidth of the fastest path over each link; 0 for a link without a path."""
    least_Bps = [0.0] * links
    for crossed, bandwidth_Bps in zip(ways, bandwidths_Bps, strict=True):
        for link in crossed:
            least_Bps[link] = max(least_Bps[link], bandwidth_Bps)
    return least_Bps


def middle(values: Sequence[float]) -> MeasuredValue:
    """Return the median of *values* with their minimum and maximum."""
    return MeasuredValue(median(values), min(values), max(values))
