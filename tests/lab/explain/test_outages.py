"""The part of the critical path that a cut link or a stopped node took, by any spelling of the link."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from simcluster.lab.explain.outages import outages
from simcluster.lab.explain.run import ExplainedRun
from simcluster.lab.what_if.critical_path import CriticalPath, PathLeg
from simcluster.topology import Topology, load

LEG = PathLeg("latency", "pi-4-sw", 1.0, 4.0, ("pi-4", "mini-1"))


@pytest.fixture
def shelf() -> Topology:
    """Names with a dash, which also joins the ends in the name of a link."""
    link = {"bandwidth": "1 Gbps", "latency": "1 ms"}
    nodes = {"pi-4": {"device": "raspberry-pi-4"}, "mini-1": {"device": "mac-mini-m4"}, "sw": {"kind": "switch"}}
    return load({"nodes": nodes, "links": [{"between": [name, "sw"], **link} for name in ("pi-4", "mini-1")]})


def told(shelf: Topology, plan: dict[str, Any], kind: str = "cut") -> list[str]:
    return list(map(str, outages([LEG], [{"kind": kind, "plan": plan, "spells_s": [[2.0, 3.5]]}], shelf)))


@pytest.mark.parametrize("name", ["pi-4-sw", "sw-pi-4"])
def test_a_link_is_found_by_both_of_its_names_also_with_dashes(shelf: Topology, name: str) -> None:
    assert told(shelf, {"link": name}) == [f"It waited 1.50 s for link {name}, which the fault plan had cut."]


def test_the_other_direction_of_a_link_and_an_idle_node_are_not_waited_for(shelf: Topology) -> None:
    assert told(shelf, {"link": "pi-4-sw", "towards": "pi-4"}) == []
    assert told(shelf, {"link": "pi-4-sw", "towards": "sw"}) != []
    assert told(shelf, {"node": "mini-1"}, "hang") == ["It waited 1.50 s for mini-1, which the fault plan had stopped."]


@pytest.mark.parametrize(
    ("cut_until_s", "said"),
    [
        (3.8, r"by link pi-4-sw if it were not cut: at most 45 %"),  # 1.8 s of 4 s; 1.2 s of its latency remain
        (2.5, r"by less latency on pi-4-sw, .*: at most 62 %"),  # 2.5 s of 4 s
    ],
)
def test_a_link_gains_by_its_numbers_only_where_it_was_not_cut(shelf: Topology, cut_until_s: float, said: str) -> None:
    legs = (PathLeg("compute", "mini-1", 0.0, 1.0), LEG)
    rows = [{"kind": "cut", "plan": {"link": "pi-4-sw"}, "spells_s": [[2.0, cut_until_s]]}]
    run: Any = SimpleNamespace(rests={})
    path = CriticalPath(legs, 4.0)
    explained = ExplainedRun(run, shelf, 4.0, (), tuple(path.parts), outages(legs, rows, shelf))
    (sentence,) = explained._help()
    assert re.search(said, sentence)
