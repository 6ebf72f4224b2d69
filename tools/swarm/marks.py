"""Marks that a soak must reach.

A mark is a kind of fault, a way to survive it, and an algorithm for which docs/faults.md declares
this way. Other marks are rare draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from tools.swarm.case import DRAWING, NORMED, Case
from tools.swarm.draw.case import LAYERED, MOST, SIZES
from tools.swarm.draw.faults import KINDS, LOSING
from tools.swarm.draw.topology import IN_PARTS, ODD_SHAPES
from tools.swarm.models import PLACES, SOURCES
from tools.swarm.play import Played
from tools.swarm.promise import TABLE
from tools.swarm.trial import Verdict

Mark = tuple[str, str, str]
"""(kind of fault, way, algorithm), or ("drawn", feature, way or algorithm or "")."""

COLUMNS: Final = {"crash": "crash", "restart": "restart", "late join": "join", "leave": "leave", "long hang": "hang"}
"""Column of the table in docs/faults.md -> kind of fault."""
SILENT: Final = ("hang", "cut", "flap", "partition")
"""Kinds of faults that every node survives if they are short."""
SLOW: Final = ("slow", "latency", "bandwidth", "loss", "reset")
"""Kinds of faults that cost only time."""


WAYS: Final = ("all end well", "goes on", "re-forms", "fails")
DRAWN: Final = (
    "equal sizes by node", "unequal sizes by node", "running mean", "global draws of a workload",
    "global draws of an algorithm", "nine to twelve nodes",
)  # fmt: skip
"""Draws that must occur with each of WAYS, except the combinations in NEVER."""
NEVER: Final = {("unequal sizes by node", "re-forms"), ("global draws of an algorithm", "goes on")}
"""Combinations that cannot occur.

With unequal sizes by node, no group re-forms. An algorithm with global draws makes the promises of
KIN.
"""


def declared() -> set[Mark]:
    """Return every mark that the table of docs/faults.md implies."""
    assert {*COLUMNS.values(), *SILENT, *SLOW} == set(KINDS)
    found: set[Mark] = set()
    for algorithm, words in TABLE.items():
        found |= {(kind, "all end well", algorithm) for kind in (*SILENT, *SLOW)}
        found |= {(kind, way, algorithm) for column, kind in COLUMNS.items() for way in _ways(words[column])}
        found |= {(kind, way, algorithm) for kind in SILENT for way in _ways(words["long hang"])}
    found |= {("drawn", what, way) for what, way in {*product(DRAWN, WAYS)} - NEVER}
    found |= {("drawn", "running mean", algorithm) for algorithm in TABLE if algorithm not in LAYERED}
    found |= {("drawn", f"{kind} beside a join", "") for kind in LOSING}
    found |= {("drawn", f"draw of {source} in the {place}", "") for source, place in product(SOURCES, PLACES)}
    shapes = [shape.replace(" ", "-") for shape in ODD_SHAPES]
    return found | {("drawn", f"shape {shape}", "") for shape in shapes if shape != IN_PARTS}


def reached(verdict: Verdict) -> set[Mark]:
    """Return the marks that *verdict* reaches.

    A broken invariant or a refused case reaches none.
    """
    if verdict.refused or verdict.broken or len(verdict.runs) < 2:
        return set()
    kinds = {row["kind"] for row in verdict.runs[1].happened}
    ways = {way_of_ending(verdict.runs[1])}
    if len(verdict.runs) > 2:
        ways.add("resumed")
    found = {(kind, way, verdict.case.algorithm) for kind in kinds for way in ways}
    found |= {("drawn", what, way) for what, way in product(_drawn(verdict.case), ways & {*WAYS})}
    return found | {("drawn", what, detail) for what, detail in _details(verdict.case, kinds)}


def _drawn(case: Case) -> Iterator[str]:
    """Yield the elements of DRAWN that *case* has."""
    workload, size = case.document["workload"], case.document["workload"].get("batch_size")
    if isinstance(size, dict):
        yield "equal sizes by node" if len(case.batch_sizes) == 1 else "unequal sizes by node"
    if case.is_normed:
        yield "running mean"
    if workload.get("path") == DRAWING:
        yield "global draws of a workload"
    if case.is_noisy:
        yield "global draws of an algorithm"
    if SIZES[-1] < len(case.workers) <= MOST:
        yield "nine to twelve nodes"


def _details(case: Case, kinds: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (feature, algorithm or "") for the other marks of *case*.

    *kinds* are those of its faults.
    """
    workload: dict[str, Any] = case.document["workload"]
    if workload.get("path") == NORMED:
        yield "running mean", case.algorithm
    if workload.get("path") == DRAWING:
        yield f"draw of {workload['source']} in the {workload['place']}", ""
    if "join" in kinds:
        yield from ((f"{kind} beside a join", "") for kind in kinds.intersection(LOSING))
    yield f"shape {case.document['topology']['name']}", ""


def _ways(word: str) -> tuple[str, ...]:
    """Return the ways in which a run may end if the table says *word*."""
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
