"""Cases that are slightly smaller than a failing one: without a fault, a setting, a node
or steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from simcluster.units import parse_latency, write_latency
from tools.swarm.case import Case

PLAIN_NODE: Final = {"device": "raspberry-pi-4"}
PLAIN_LINK: Final = {"bandwidth": "1 Mbps", "latency": "100 us"}
PLAIN_WORKLOAD: Final = {"name": "quadratic", "batch_size": 8}
EXTRAS: Final = ("every", "times", "towards", "down", "notice")
"""Optional keys of a fault. The first two are only valid together."""


def smaller(case: Case) -> Iterator[Case]:
    """Yield cases that are smaller than *case*, the largest changes first.

    They have fewer faults, fewer settings, a plainer topology, fewer nodes, fewer steps or rounder
    times.
    """
    yield from _fewer_faults(case)
    yield from _fewer_settings(case)
    yield from _plainer_topology(case)
    yield from _fewer_nodes(case)
    yield from _fewer_steps(case)
    yield from _rounder_times(case)


def _fewer_faults(case: Case) -> Iterator[Case]:
    for number, fault in enumerate(case.faults):
        yield case.with_faults([*case.faults[:number], *case.faults[number + 1 :]])
        for key in EXTRAS:
            if key in fault:
                gone = ("every", "times") if key in ("every", "times") else (key,)
                yield _with_fault(case, number, {name: value for name, value in fault.items() if name not in gone})


def _fewer_settings(case: Case) -> Iterator[Case]:
    for key in ("checkpoint", "regroup", "evaluate_every"):
        if key in case.document:
            yield replace(case, document={name: value for name, value in case.document.items() if name != key})
    for key in case.settings:
        block = case.document["algorithm"]
        yield case.with_document(algorithm={name: value for name, value in block.items() if name != key})
    for key in case.options:
        yield replace(case, options={name: value for name, value in case.options.items() if name != key})
    if "time" in case.document["stop"]:
        yield case.with_document(stop={key: value for key, value in case.document["stop"].items() if key != "time"})
    if case.document["workload"].get("name") != "mnist_mlp" and case.document["workload"] != PLAIN_WORKLOAD:
        yield case.with_document(workload=dict(PLAIN_WORKLOAD))
    if case.document["seed"]:
        yield case.with_document(seed=0)


def _plainer_topology(case: Case) -> Iterator[Case]:
    topology = case.document["topology"]
    if "inbox" in topology:
        yield case.with_document(topology={key: value for key, value in topology.items() if key != "inbox"})
    yield _with_topology(case, _make_plain)
    for name, node in topology["nodes"].items():
        if node not in (PLAIN_NODE, {"kind": "switch"}):
            yield _with_topology(case, lambda made, name=name: made["nodes"].update({name: dict(PLAIN_NODE)}))
    for number, link in enumerate(topology["links"]):
        if {key: value for key, value in link.items() if key != "between"} != PLAIN_LINK:
            yield _with_topology(case, lambda made, number=number: _make_link_plain(made["links"][number]))


def _fewer_nodes(case: Case) -> Iterator[Case]:
    """Yield a case without each of the workers that no fault names."""
    named = {str(fault.get("node")) for fault in case.faults}
    named |= {end for fault in case.faults for end in str(fault.get("link", "")).split("-")}
    for name in case.workers:
        links = [link for link in case.document["topology"]["links"] if name in link["between"]]
        if name not in named and len(case.workers) > 1 and links:
            yield _without(case, name)


def _without(case: Case, name: str) -> Case:
    def drop(made: dict[str, Any]) -> None:
        del made["nodes"][name]
        made["links"] = [link for link in made["links"] if name not in link["between"]]

    faults = [dict(fault) for fault in case.faults]
    for fault in faults:
        if "groups" in fault:
            fault["groups"] = [[other for other in group if other != name] for group in fault["groups"]]
    return _with_topology(case, drop).with_faults(faults)


def _fewer_steps(case: Case) -> Iterator[Case]:
    stop = case.document["stop"]
    if "epochs" in stop:
        rest = {key: value for key, value in stop.items() if key != "epochs"}
        yield case.with_document(stop={"steps": 8, **rest})
    steps = stop.get("steps", 1)
    for fewer in dict.fromkeys((1, steps // 2, steps - 1)):
        if 0 < fewer < steps:
            yield case.with_document(stop={**stop, "steps": fewer})


def _rounder_times(case: Case) -> Iterator[Case]:
    for number, fault in enumerate(case.faults):
        for key in ("at", "after", "for", "notice", "add", "period"):
            if key not in fault:
                continue
            time_s = parse_latency(fault[key])
            for digits in (1, 2, 3):
                rounded = write_latency(float(f"{time_s:.{digits}g}"))
                if len(rounded) < len(fault[key]):
                    yield _with_fault(case, number, fault | {key: rounded})


def _with_fault(case: Case, number: int, fault: dict[str, Any]) -> Case:
    return case.with_faults([*case.faults[:number], fault, *case.faults[number + 1 :]])


def _with_topology(case: Case, change: Callable[[dict[str, Any]], object]) -> Case:
    made = copy.deepcopy(case.document["topology"])
    change(made)
    return case.with_document(topology=made)


def _make_plain(made: dict[str, Any]) -> None:
    made["nodes"] = {
        name: node if node.get("kind") == "switch" else dict(PLAIN_NODE) for name, node in made["nodes"].items()
    }
    for link in made["links"]:
        _make_link_plain(link)


def _make_link_plain(link: dict[str, Any]) -> None:
    between = link["between"]
    link.clear()
    link.update({"between": between, **PLAIN_LINK})
