"""Marks of what a soak has reached: each kind of fault, each way of getting over it, each algorithm."""

from __future__ import annotations

from typing import Final

from tests.swarm.draw.faults import KINDS
from tests.swarm.play import Played
from tests.swarm.promise import TABLE
from tests.swarm.trial import Verdict

Mark = tuple[str, str, str]
"""(kind of fault, way, algorithm)."""

COLUMNS: Final = {"crash": "crash", "restart": "restart", "late join": "join", "leave": "leave", "long hang": "hang"}
"""Columns of the table by the kind of fault that each is about."""
SILENT: Final = ("hang", "cut", "flap", "partition")
"""Kinds that are survived if they are short."""
SLOW: Final = ("slow", "latency", "bandwidth", "loss", "reset")
"""Kinds that only take time."""


def declared() -> set[Mark]:
    """Every mark that the table declares."""
    assert {*COLUMNS.values(), *SILENT, *SLOW} == set(KINDS)
    found: set[Mark] = set()
    for algorithm, words in TABLE.items():
        found |= {(kind, "all end well", algorithm) for kind in (*SILENT, *SLOW)}
        found |= {(kind, way, algorithm) for column, kind in COLUMNS.items() for way in _ways(words[column])}
        found |= {(kind, way, algorithm) for kind in SILENT for way in _ways(words["long hang"])}
    return found


def reached(verdict: Verdict) -> set[Mark]:
    """The marks of *verdict*, if its runs are as they should be."""
    if verdict.refused or verdict.broken or len(verdict.runs) < 2:
        return set()
    kinds = {row["kind"] for row in verdict.runs[1].happened}
    ways = {way_of_ending(verdict.runs[1])}
    if len(verdict.runs) > 2:
        ways.add("resumed")
    return {(kind, way, verdict.case.algorithm) for kind in kinds for way in ways}


def _ways(word: str) -> tuple[str, ...]:
    """Return the marks of a run for which the table says *word*."""
    return ("fails", "restored") if word == "restored" else (word,)


def way_of_ending(played: Played) -> str:
    """Return how *played* ended, in the words of docs/faults.md."""
    if not played.is_done:
        return "fails"
    if "restarts" in played.summary:
        return "restored"
    if played.summary.get("regroups"):
        return "re-forms"
    return "goes on" if played.lost else "all end well"
