"""From samples to numbers: what the way between two nodes is like, then what each link must be like. Arithmetic only.

This file knows samples, routes and least squares. It must not know clocks, transports or files.

A message of m bytes takes o_s + L + m / B + o_r: the sender's and the receiver's overhead, the latency and the
bandwidth of the way (LogGP; Alexandrov, Ionescu, Schauser and Scheiman 1995). Everything starts from medians, so a
pause of the machine here and there changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from simcluster.calibrate.samples import BURST_MESSAGES, STREAM_MESSAGES, PairSamples

CLOSE = 0.03
"""A link within this much of a way's slowest one may be its bottleneck, too."""


@dataclass(frozen=True)
class Value:
    """A measured number, and between what it was found: quartiles of repetitions, or all ways that tell it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class WayFit:
    """What the way between ranks *a* and *b* is like, taken as alike in both directions.

    *startup_s* is what a message takes beside its bytes, o_s + L + o_r; its quartiles are over sizes. *both_ways* is
    the share of the bandwidth that each direction has when both are used: near 1 on full duplex, 1/2 on half.
    """

    a: int
    b: int
    startup_s: Value
    bandwidth_Bps: Value
    send_overhead_s: Value
    recv_overhead_s: Value
    both_ways: float

    @property
    def latency_s(self) -> float:
        """Of the way alone."""
        return max(0.0, self.startup_s.value - self.send_overhead_s.value - self.recv_overhead_s.value)


def quartiles(samples: Sequence[float]) -> Value:
    """The median between the quartiles."""
    low, middle, high = np.quantile(samples, [0.25, 0.5, 0.75])
    return Value(float(middle), float(low), float(high))


def fit_way(samples: PairSamples) -> WayFit:
    """Reads off what one pair of nodes measured.

    - B: what each further message of a stream of large ones adds.
    - o_s: what sending an empty message takes its caller; of many in a row, since some wait for the loop's turn.
    - o_r: how much apart empty messages come in that are sent as fast as can be.
    - o_s + L + o_r: what a message takes beyond m / B, the median over sizes. A queue or a shaper that lets the first
      bytes through for nothing makes this less for long messages than for short ones, and training sends both.
    """
    halves_s = {size: quartiles([seconds / 2 for seconds in taken]) for size, taken in samples.round.items()}
    empty_s = halves_s[0].value
    largest, streamed = max(samples.stream.items())
    first_s = halves_s[largest].value + empty_s  # the first message, and the answer
    further_bytes = (STREAM_MESSAGES - 1) * largest
    bandwidths = [further_bytes / max(seconds - first_s, 1e-12) for seconds in streamed]
    bandwidth = quartiles(bandwidths)
    startups = [half.value - size / bandwidth.value for size, half in halves_s.items()]
    send = quartiles([seconds / BURST_MESSAGES for seconds in samples.sends[0]])
    gaps = [max(0.0, seconds - 2 * empty_s) / (BURST_MESSAGES - 1) for seconds in samples.burst[0]]
    both_s = median(samples.both[largest]) - 2 * empty_s
    return WayFit(
        samples.a,
        samples.b,
        quartiles(startups),
        bandwidth,
        send,
        quartiles(gaps),
        min(1.0, largest / bandwidth.value / both_s) if both_s > 0 else 1.0,
    )


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


def slowest_links(ways: Sequence[Sequence[int]], bandwidths_Bps: Sequence[float], links: int) -> list[Value | None]:
    """The bandwidth of every link: that of the ways whose slowest link it is, and between what they are.

    None for a link that no way crosses. A link is as fast as the fastest way over it, at least; if it is the slowest
    of none, that is all that is known, and *high* is infinite.
    """
    least = [0.0] * links
    for way, bandwidth_Bps in zip(ways, bandwidths_Bps, strict=True):
        for link in way:
            least[link] = max(least[link], bandwidth_Bps)
    telling: Mapping[int, list[float]] = {link: [] for link in range(links)}
    for way, bandwidth_Bps in zip(ways, bandwidths_Bps, strict=True):
        slowest_Bps = min((least[link] for link in way), default=0.0)
        for link in way:
            if least[link] <= slowest_Bps * (1 + CLOSE):
                telling[link].append(bandwidth_Bps)
    found: list[Value | None] = []
    for link in range(links):
        if telling[link]:
            found.append(Value(median(telling[link]), min(telling[link]), max(telling[link])))
        else:
            found.append(Value(least[link], least[link], float("inf")) if least[link] else None)
    return found
