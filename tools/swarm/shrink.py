"""Shrinks a failing case, and compares it with the most similar case that passes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Final

from simcluster.runs.record import RunRecord, Span
from tools.swarm.smaller import smaller
from tools.swarm.trial import Verdict, try_case

TRIES: Final = 150
"""The limit on the number of cases tried, which take a few seconds in all."""


@dataclass
class Shrunk:
    """The smallest case found that breaks the same invariant, and the most similar one that passes.

    *passing* is None if no case has passed.
    """

    verdict: Verdict
    passing: Verdict | None
    tried: int


def shrink(verdict: Verdict, place: Path, tries: int = TRIES) -> Shrunk:
    """Return the smallest case found that still breaks the first invariant of *verdict*.

    Try at most *tries* cases.
    """
    wanted = verdict.names[0]
    passing = None
    tried = 0
    found = True
    while found:
        found = False
        for case in smaller(verdict.case):
            if tried == tries:
                return Shrunk(verdict, passing, tried)
            if case.document == verdict.case.document and case.options == verdict.case.options:
                continue
            tried += 1
            other = try_case(case, place)
            if wanted in other.names:
                verdict = other
                passing = None
                found = True
                break
            if not other.broken and not other.refused:
                passing = nearest(verdict, passing, other)
    return Shrunk(verdict, passing, tried)


def nearest(failing: Verdict, one: Verdict | None, other: Verdict) -> Verdict:
    """Return the passing verdict that shares more events with *failing* before the first
    difference.
    """
    if one is None:
        return other
    return max((one, other), key=lambda passing: _alike(failing, passing))


def first_difference(failing: Verdict, passing: Verdict) -> str:
    """Describe the first event that differs between two cases, in their disturbed runs."""
    for number, (one, other) in enumerate(zip_longest(*(_events(verdict) for verdict in (failing, passing)))):
        if one != other:
            return f"event {number}: {_told(one)}; in the run that passes: {_told(other)}"
    return "the same events, to the end"


def _alike(failing: Verdict, passing: Verdict) -> int:
    pairs = zip(_events(failing), _events(passing), strict=False)
    return next((number for number, (one, other) in enumerate(pairs) if one != other), 0)


Event = tuple[float, str, Span]


def _events(verdict: Verdict) -> list[Event]:
    """Return (end, node, span) of the disturbed run of *verdict*, in order of the ends.

    If there is no disturbed run, use the undisturbed one.
    """
    record = verdict.runs[:2][-1].record if verdict.runs else None
    return sorted(_of(record), key=lambda event: (event[0], event[1], event[2])) if record is not None else []


def _of(record: RunRecord) -> Iterator[Event]:
    for node in record.nodes:
        for span in node.spans:
            yield span.end_s, node.name, span


def _told(event: Event | None) -> str:
    if event is None:
        return "nothing more"
    end_s, name, span = event
    with_whom = f" with rank {span.peer}" if span.peer >= 0 else ""
    return f"{end_s:.9g} s, {name}: {span.kind} {span.tag!r}{with_whom}, begun at {span.start_s:.9g} s"
