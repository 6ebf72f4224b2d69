"""Reads what a topology says of its network as a whole: the model, routing and routes, background, inboxes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, cast, get_args

from simcluster.documents.fields import Fields
from simcluster.errors import nearest
from simcluster.topology.model.conditions import BackgroundFlow
from simcluster.topology.model.model import Link, NetworkKind, Node, Routing
from simcluster.topology.model.spread import Factors
from simcluster.topology.read.conditions import BACKGROUND_KEYS, traffic
from simcluster.topology.read.spread import read_factors, read_times
from simcluster.units import parse_size

NETWORK_KEYS = ("network", "routing", "routes", "background", "inbox", "misfit", "startup")
FLOW_KEYS = ("from", "to", *BACKGROUND_KEYS)

Nodes = Mapping[str, Node | None]
"""By name; None for one that something is wrong with."""


class Network(NamedTuple):
    """What the keys of NETWORK_KEYS say, in the order of Topology's fields."""

    network: NetworkKind
    routing: Routing
    paths: tuple[tuple[str, ...], ...]
    background: tuple[BackgroundFlow, ...]
    inbox_bytes: int | None
    misfit: Factors
    startup_s: Factors


def read_network(fields: Fields, nodes: Nodes, links: list[Link | None]) -> Network:
    """The network of the topology whose top keys are *fields*."""
    kind = cast("NetworkKind | None", fields.choice("network", get_args(NetworkKind)))
    routing = cast("Routing | None", fields.choice("routing", get_args(Routing)))
    return Network(
        kind or "maxmin",
        routing or "shortest",
        _read_paths(fields, nodes, links),
        _read_background(fields, nodes),
        fields.quantity("inbox", parse_size),
        read_factors(fields, "misfit"),
        read_times(fields, "startup"),
    )


def _read_paths(fields: Fields, nodes: Nodes, links: list[Link | None]) -> tuple[tuple[str, ...], ...]:
    block = fields.get("routes")
    if not fields.has("routes"):
        return ()
    if not isinstance(block, list):
        fields.problem("routes", expected="a list of routes, each a list of nodes from end to end: [[a, sw1, b]]")
        return ()
    joined = {frozenset((link.a, link.b)) for link in links if link is not None}
    complete = None not in links
    first: dict[frozenset[str], int] = {}
    paths = []
    for index, value in enumerate(block):
        names = [str(name) for name in value] if _is_names(value) else []
        wrong = _wrong_path(names, nodes, joined if complete else None)
        if not wrong and first.setdefault(frozenset((names[0], names[-1])), index) != index:
            wrong = ("a second route between them", "one: it goes both ways")
        if wrong:
            found, expected = wrong
            _problem(fields, index, found or None, expected)
        else:
            paths.append(tuple(names))
    return tuple(paths)


def _is_names(value: Any) -> bool:
    # A node may be called 7, and 7 is a number to YAML.
    return isinstance(value, list) and all(type(name) in (str, int) for name in value)


def _problem(fields: Fields, index: int, found: str | None, expected: str) -> None:
    fields.problems.append(fields.document.problem(("routes", index), found=found, expected=expected))


def _wrong_path(names: list[str], nodes: Nodes, joined: set[frozenset[str]] | None) -> tuple[str, str] | None:
    """(what was found, what was expected) of a path that is wrong. *joined* is None if not all links are known."""
    if len(names) < 2 or len(set(names)) < len(names):
        return "", "names of nodes from end to end, two at least, each once"
    for name in names:
        if name not in nodes:
            return f"the unknown node {name!r}", f"a node of this file: {nearest(name, nodes)}"
    for name in (names[0], names[-1]):
        node = nodes[name]
        if node is not None and node.kind == "switch":
            return f"the switch {name} at an end", "workers or hosts at both ends"
    for name in names[1:-1]:
        node = nodes[name]
        if node is not None and not node.gateway:
            return f"a way through {name}, which forwards nothing", "gateways and switches between the ends"
    for a, b in pairwise(names):
        if joined is not None and frozenset((a, b)) not in joined:
            return f"no link between {a} and {b}", "nodes that links join"
    return None


def _read_background(fields: Fields, nodes: Nodes) -> tuple[BackgroundFlow, ...]:
    block = fields.get("background")
    if not fields.has("background"):
        return ()
    if not isinstance(block, list):
        fields.problem("background", expected="a list of {from, to, rate}, with on and off if it comes and goes")
        return ()
    flows = []
    for index in range(len(block)):
        flow = Fields(fields.document, ("background", index), FLOW_KEYS, fields.problems)
        if not flow.is_mapping:
            continue
        ends = [_end(flow, key, nodes) for key in ("from", "to")]
        demand = traffic(flow)
        source, target = ends
        if source is not None and source == target:
            flow.problem("to", found=repr(target), expected=f"another node than {source}")
        elif source is not None and target is not None and demand is not None:
            flows.append(BackgroundFlow(source, target, demand))
    return tuple(flows)


def _end(flow: Fields, key: str, nodes: Nodes) -> str | None:
    name = str(flow.get(key)) if flow.has(key) else ""
    node = nodes.get(name)
    if name in nodes and (node is None or node.kind != "switch"):
        return name
    ends = [end for end, node in nodes.items() if node is None or node.kind != "switch"]
    flow.problem(key, expected=f"a worker or host of this file: {nearest(name, ends)}")
    return None
