"""Find the part of the critical path during which a fault had cut a link or stopped a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from simcluster.lab.what_if.critical_path import PathLeg
from simcluster.runs import words
from simcluster.topology import Topology
from simcluster.topology.model.parallel import LinkNames

MOST_OUTAGES = 3
_DONE = {"cut": "cut", "flap": "cut", "hang": "stopped"}


def outages(legs: Sequence[PathLeg], rows: Iterable[Mapping[str, Any]], topology: Topology) -> list[str]:
    """Return a sentence per fault of *rows*, as in summary.json, that the path *legs* waited for, the longest first."""
    found = []
    for row in rows:
        plan = row["plan"]
        if row["kind"] not in _DONE:
            continue
        waited_s = sum(_overlap_s(leg, row["spells_s"]) for leg in legs if _concerns(leg, plan, topology))
        what = f"link {plan['link']}" if "link" in plan else str(plan["node"])
        by = f"the world {plan['world']}" if "world" in plan else "the fault plan"
        found.append((waited_s, f"{what}, which {by} had {_DONE[row['kind']]}"))
    longest = sorted((each for each in found if each[0] > 0.0), key=lambda each: -each[0])[:MOST_OUTAGES]
    return [f"It waited {words.seconds(waited_s)} for {what}." for waited_s, what in longest]


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
