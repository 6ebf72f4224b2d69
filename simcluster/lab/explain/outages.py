"""Find the part of the critical path during which a fault had cut a link or stopped a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from simcluster.lab.what_if.critical_path import PathLeg
from simcluster.runs import words
from simcluster.topology import Topology
from simcluster.topology.model.parallel import LinkNames

MOST_OUTAGES = 3
_DONE = {"cut": "cut", "flap": "cut", "hang": "stopped"}


class Outage(NamedTuple):
    """A fault that the critical path waited for: *what* it had *done* something to, and *by* whom.

    *waited_s* is the time by part of the path, its kind and place.
    """

    what: str
    done: str
    by: str
    waited_s: Mapping[tuple[str, str], float]

    @property
    def seconds(self) -> float:
        return sum(self.waited_s.values())

    def __str__(self) -> str:
        return f"It waited {words.seconds(self.seconds)} for {self.what}, which {self.by} had {self.done}."


def outages(legs: Sequence[PathLeg], rows: Iterable[Mapping[str, Any]], topology: Topology) -> list[Outage]:
    """Return the faults of *rows*, as in summary.json, that the path *legs* waited for, the longest first."""
    found = []
    for row in rows:
        plan = row["plan"]
        if row["kind"] not in _DONE:
            continue
        waited_s: dict[tuple[str, str], float] = defaultdict(float)
        for leg in legs:
            if _concerns(leg, plan, topology):
                waited_s[leg.kind, leg.where] += _overlap_s(leg, row["spells_s"])
        what = f"link {plan['link']}" if "link" in plan else str(plan["node"])
        by = f"the world {plan['world']}" if "world" in plan else "the fault plan"
        found.append(Outage(what, _DONE[row["kind"]], by, waited_s))
    return sorted((each for each in found if each.seconds > 0.0), key=lambda each: -each.seconds)[:MOST_OUTAGES]


def _overlap_s(leg: PathLeg, spells: Iterable[tuple[float, float | None]]) -> float:
    return sum(max(0.0, min(leg.end_s, inf if end is None else end) - max(leg.start_s, start)) for start, end in spells)


def _concerns(leg: PathLeg, plan: Mapping[str, Any], topology: Topology) -> bool:
    """Return whether the time of *leg* passes at the node of *plan*, or at a message over its link."""
    if "node" in plan:
        return plan["node"] in (leg.where, *(leg.between or ()))
    if leg.between is None:
        return False
    index = LinkNames([(link.a, link.b) for link in topology.links]).index(plan["link"])
    hit = None if index is None else topology.links[index].name
    hops = topology.used(*leg.between)
    return any(hop.link.name == hit and plan.get("towards") in (None, hop.target) for hop in hops)
