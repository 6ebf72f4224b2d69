"""The calls of a script, summed up by rank and operation: number, bytes, time in flight, time that the script waited.

Where the transport is the library's own, a call is made of its collectives (a ring for sums). Under `--backend torch`
it is gloo's, which has other schedules (its docs/algorithms.md: ring, halving-doubling, bcube, by size and world size).
So bytes and times of calls compare, and the messages inside of them do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Final, NamedTuple

from simcluster.runs import words
from simcluster.runs.spans import Span

SCRIPT: Final = "script"
"""Name of the algorithm that runs a script."""


class CallTotals(NamedTuple):
    """A number of *calls* of one operation, of *size_bytes* in all.

    For *seconds* at least one of them was in flight, and for *waited_s* of those the script waited.
    """

    calls: int
    size_bytes: int
    seconds: float
    waited_s: float

    @property
    def in_words(self) -> str:
        """The numbers as the end of a sentence."""
        size = f"{words.size(self.size_bytes)}, " if self.size_bytes else ""
        waited = words.seconds(self.waited_s)
        return f"{words.plural(self.calls, 'call')}, {size}{words.seconds(self.seconds)}, of which waited {waited}"


def call_totals(calls: Iterable[tuple[int, Span]]) -> dict[int, dict[str, CallTotals]]:
    """Return rank -> operation -> totals of the calls and waits among *calls*, (rank, span); operations by name."""
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
    """Return the median time of a step among *calls*, (rank, span), over all ranks; None without any."""
    times_s = [span.end_s - span.start_s for _, span in calls if span.kind == "step"]
    return median(times_s) if times_s else None


def _total(spans: list[Span]) -> CallTotals:
    made = [span for span in spans if span.kind == "call"]
    waits = [span for span in spans if span.kind == "wait"]
    return CallTotals(len(made), sum(span.size_bytes for span in made), _covered_s(made), _covered_s(waits))


def _covered_s(spans: list[Span]) -> float:
    """Return the time that *spans* cover, however they overlap."""
    total_s, until_s = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start_s):
        total_s += max(0.0, span.end_s - max(span.start_s, until_s))
        until_s = max(until_s, span.end_s)
    return total_s
