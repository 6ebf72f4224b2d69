"""Which all-reduce for which size: where the textbook's schedules change places."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.papers.frame import Check, Lab, Paper, agrees
from simcluster.lab.bench.collective import bench_collective
from simcluster.topology import star

A, B = 100e-6, 1e9
"""Latency of a route; bytes a second of a link."""


def elapsed_s(schedule: str, p: int, size_bytes: int) -> float:
    """Of an all-reduce among *p* hosts of a star."""
    cluster = star(p, bandwidth=B, latency=A / 2)
    return float(bench_collective("all_reduce", schedule, cluster, size_bytes, {})["elapsed_s"])


def crossing_bytes(small: str, large: str, p: int) -> int:
    """The size from which on *large* is the faster one, found by halving an interval."""
    low, high = 1, 2**30
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        if elapsed_s(large, p, middle) < elapsed_s(small, p, middle):
            high = middle
        else:
            low = middle
    return high


def textbook_s(schedule: str, p: int, size_bytes: float) -> float:
    """Thakur, Rabenseifner and Gropp's costs without the reduction, and with the fold of MPICH for other than 2^k."""
    f = p.bit_length() - 1
    power = 1 << f
    folded = p != power
    if schedule == "ring":
        return 2 * (p - 1) * (A + size_bytes / p / B)
    if schedule == "recursive_doubling":
        return (f + 2 * folded) * (A + size_bytes / B)
    once = 2 * f * A + 2 * (power - 1) / power * size_bytes / B
    return once + folded * (2 * A + 2 * size_bytes / B)


def textbook_crossing(small: str, large: str, p: int) -> float:
    """Both are lines in the size: where they meet."""
    late_s = textbook_s(large, p, 0) - textbook_s(small, p, 0)
    gained_s = late_s - (textbook_s(large, p, 1e9) - textbook_s(small, p, 1e9))
    return 1e9 * late_s / gained_s


def ring_wins(p: int, size_bytes: int) -> bool:
    return elapsed_s("ring", p, size_bytes) < elapsed_s("halving_doubling", p, size_bytes) * (1 - 1e-9)


def measure(lab: Lab) -> Sequence[Check]:
    checks = []
    # At the end of a search the interval is a thousandth of its lower end.
    for p in lab.pick((8,), (4, 8, 16)):
        expected = textbook_crossing("recursive_doubling", "halving_doubling", p)
        ours = crossing_bytes("recursive_doubling", "halving_doubling", p)
        name = f"p = {p}, halving-doubling overtakes recursive doubling"
        checks.append(agrees(name, ours / 1e3, expected / 1e3, 2e-3 * expected / 1e3, " kB"))
        won = [size for size in (2**exponent for exponent in range(0, 31, 5)) if ring_wins(p, size)]
        checks.append(
            Check(f"p = {p}, sizes at which a ring beats halving-doubling", "none", str(won or "none"), not won)
        )
    for p in lab.pick((6,), (6, 12)):
        for small, large in (("recursive_doubling", "ring"), ("halving_doubling", "ring")):
            expected, ours = textbook_crossing(small, large, p), crossing_bytes(small, large, p)
            name = f"p = {p}, ring overtakes {small.replace('_', ' ')}"
            checks.append(agrees(name, ours / 1e3, expected / 1e3, 2e-3 * expected / 1e3, " kB"))
    return checks


PAPER = Paper(
    title="Which all-reduce for which size",
    citation="Thakur, Rabenseifner and Gropp 2005. Optimization of Collective Communication Operations in MPICH "
    "(International Journal of High Performance Computing Applications), section 4.5",
    claim="Recursive doubling reduces small vectors fastest, because it has the fewest rounds; halving and doubling "
    "reduces large ones fastest, because it sends the fewest bytes. If the number of ranks is not a power of "
    "two, a ring sends fewer still, and wins for the largest.",
    setting="`simcluster bench collective` on a star of 4 to 16 hosts, 100 us and 1 GB/s from host to host, "
    "reduction free. The size from which one schedule beats the other is found by bisection, to a thousandth.",
    expected="The crossings of the textbook's straight lines, to 0.2 %; for powers of two a ring never beats "
    "halving-doubling.",
    measure=measure,
)
