"""Sum up the collective calls of a script by rank and operation: their number, bytes and seconds.

On the backends `sim` and `sockets` the library runs a call with its own collectives (a ring for
sums). Under `--backend torch` gloo runs it, with other schedules (gloo's docs/algorithms.md: ring,
halving-doubling or bcube, by size and world size). So the bytes and times of calls can be compared
between backends, but not the messages that they consist of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from simcluster.runs import words
from simcluster.runs.spans import Span

SCRIPT = "script"
"""The name of the algorithm that runs a script."""


class CallTotals(NamedTuple):
    """The number of *calls* of one operation, and the sum of their bytes.

    At least one call was in flight for *seconds*, and the script waited for a call during
    *waited_s* of them.
    """

    calls: int
    size_bytes: int
    seconds: float
    waited_s: float

    @property
    def in_words(self) -> str:
        """The totals in words, for the end of a sentence."""
        size = f"{words.size(self.size_bytes)}, " if self.size_bytes else ""
        waited = words.seconds(self.waited_s)
        return f"{words.plural(self.calls, 'call')}, {size}{words.seconds(self.seconds)}, of which waited {waited}"


def call_totals(calls: Iterable[tuple[int, Span]]) -> dict[int, dict[str, CallTotals]]:
    """Return rank -> operation -> totals, sorted by both, from the (rank, span) pairs *calls*."""
    found: dict[int, dict[str, list[Span]]] = defaultdict(lambda: defaultdict(list))
    for rank, span in calls:
        if span.kind == "step":
            continue
        found[rank][span.tag.partition(" ")[0]].append(span)
    return {
        rank: {operation: _total(of_rank[operation]) for operation in sorted(of_rank)}
        for rank, of_rank in sorted(found.items())
    }


def step_s(calls: Iterable[tuple[int, Span]]) -> float | None:
    """Return the median duration of the steps in *calls*, (rank, span) pairs; None without steps."""
    times_s = [span.end_s - span.start_s for _, span in calls if span.kind == "step"]
    return median(times_s) if times_s else None


def _total(spans: list[Span]) -> CallTotals:
    made = [span for span in spans if span.kind == "call"]
    waits = [span for span in spans if span.kind == "wait"]
    return CallTotals(len(made), sum(span.size_bytes for span in made), covered_s(made), covered_s(waits))


def covered_s(spans: Iterable[Span]) -> float:
    """Return the seconds during which at least one of *spans* was active."""
    total_s = 0.0
    until_s = float("-inf")
    for span in sorted(spans, key=lambda span: span.start_s):
        total_s += max(0.0, span.end_s - max(span.start_s, until_s))
        until_s = max(until_s, span.end_s)
    return total_s
