"""Read the settings of a topology's whole network, such as the model, routes and background."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, get_args

from pydantic import Field

from simcluster.documents.models import Block, WrongValue
from simcluster.documents.reading import DocumentReading
from simcluster.documents.values import (
    Latency,
    Schema,
    Size,
    ValueValidator,
    list_of,
    mapping_of,
    one_of,
    only,
    whole,
)
from simcluster.spelling import nearest
from simcluster.topology.model.compute import Machine
from simcluster.topology.model.conditions import BackgroundFlow
from simcluster.topology.model.link import Link
from simcluster.topology.model.model import NetworkKind, Node, Routing, dialled
from simcluster.topology.model.parallel import (
    RULES,
    LinkNames,
    Parallel,
    addressed,
)
from simcluster.topology.read.conditions import BackgroundBlock
from simcluster.topology.read.spread import PositiveFactors, Times

NETWORK_KEYS = ("network", "routing", "routes", "parallel", "background", "inbox", "machines", "misfit", "startup")

MOST_CORES = 4096

Nodes = Mapping[str, Node | None]
"""Name -> node; None for an invalid node."""

_ROUTES = "a list of routes, each a list of nodes from end to end: [[a, sw1, b]]"
_ROUTE = {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "uniqueItems": True}
_ROUTES_SCHEMA = {"type": "array", "items": _ROUTE}
_MACHINES = "a mapping of machines by name: {shelf: {cores: 4}}"
_PARALLEL = f"one of {', '.join(RULES)}, or a list of links in order of preference: [a-b#2, a-b#1]"
_PARALLEL_SCHEMA = {"anyOf": [{"enum": list(RULES)}, {"type": "array", "minItems": 1, "items": {"type": "string"}}]}
_BACKGROUND = "a list of {from, to, rate}, with on and off if it comes and goes"


def _read_parallel(value: object) -> Parallel:
    if isinstance(value, str) and value in RULES:
        return value
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise WrongValue(_PARALLEL)


class FlowBlock(BackgroundBlock):
    """Background traffic between two nodes; `check_network` checks that the nodes exist."""

    mapping = "a mapping with from, to, rate, on, off"
    rules: ClassVar[Schema] = BackgroundBlock.rules | {"required": ["from", "to", "rate"]}
    source: Any = Field(None, alias="from")
    target: Any = Field(None, alias="to")


class MachineBlock(Block):
    """A machine that several nodes share."""

    cores: Annotated[int, whole(1, MOST_CORES)]
    wakeup_s: Latency = Field(0.0, alias="wakeup")


class NetworkBlock(Block):
    """The settings of the whole network: NETWORK_KEYS, with the fields of Topology."""

    network: Annotated[NetworkKind, one_of(get_args(NetworkKind))] = "maxmin"
    routing: Annotated[Routing, one_of(get_args(Routing))] = "shortest"
    routes: Annotated[list[Any], only(lambda value: isinstance(value, list), _ROUTES, _ROUTES_SCHEMA)] = Field([])
    parallel: Annotated[Parallel, ValueValidator(_read_parallel, _PARALLEL_SCHEMA)] = "shortest"
    background: Annotated[list[FlowBlock], list_of(FlowBlock, _BACKGROUND)] = Field([])
    inbox_bytes: Size | None = Field(None, alias="inbox")
    machines: Annotated[dict[str, MachineBlock], mapping_of(MachineBlock, _MACHINES)] = Field({})
    misfit: PositiveFactors = ()
    startup_s: Times = Field((), alias="startup")

    def facts(self) -> dict[str, Any]:
        """Return name -> value of the fields of Topology that these settings determine."""
        flows = [BackgroundFlow(str(flow.source), str(flow.target), flow.background) for flow in self.background]
        names = ("network", "routing", "parallel", "inbox_bytes", "misfit", "startup_s")
        same = {name: getattr(self, name) for name in names}
        paths = tuple(tuple(str(name) for name in route) for route in self.routes)
        machines = {name: Machine(machine.cores, machine.wakeup_s) for name, machine in self.machines.items()}
        return {"paths": paths, "background": tuple(flows), "machines": machines, **same}


def check_network(reading: DocumentReading, nodes: Nodes, links: list[Link | None]) -> None:
    """Report unknown machines of *nodes*, and invalid routes and background traffic."""
    machines = reading.document.get(("machines",))
    known = list(map(str, machines)) if isinstance(machines, dict) else []
    for name, node in nodes.items():
        if node is not None and node.machine is not None and node.machine not in known:
            reading.bad(("nodes", name, "machine"), f"one of machines: {nearest(node.machine, known)}")
    _check_parallel(reading, nodes, [link for link in links if link is not None])
    routes, background = reading.document.get(("routes",)), reading.document.get(("background",))
    joined = None if None in links else {frozenset((link.a, link.b)) for link in links if link is not None}
    first: dict[frozenset[str], int] = {}
    for index, value in enumerate(routes if isinstance(routes, list) else ()):
        # YAML reads the name of a node called 7 as a number.
        is_names = isinstance(value, list) and all(type(name) in (str, int) for name in value)
        names = [str(name) for name in value] if is_names else []
        wrong = _wrong_path(names, nodes, joined)
        if not wrong and first.setdefault(frozenset((names[0], names[-1])), index) != index:
            wrong = ("a second route between them", "one: it goes both ways")
        if wrong:
            reading.bad(("routes", index), wrong[1], wrong[0] or None)
    ends = [name for name, node in nodes.items() if node is None or node.kind != "switch"]
    for index, flow in enumerate(background if isinstance(background, list) else ()):
        if not isinstance(flow, dict):
            continue
        a, b = given = [str(flow.get(key) or "") for key in ("from", "to")]
        for key, name in zip(("from", "to"), given, strict=True):
            if name not in ends:
                reading.bad(("background", index, key), f"a worker or host of this file: {nearest(name, ends)}")
        if a == b and a in ends:
            reading.bad(("background", index, "to"), f"another node than {a}", repr(b))


def _check_parallel(reading: DocumentReading, nodes: Nodes, links: list[Link]) -> None:
    """Report names in `parallel` that are not one of several *links*, and addresses that choose none."""
    rule = reading.document.get(("parallel",))
    several = [link for link in links if link.number]
    names = LinkNames([(link.a, link.b) for link in several])
    for index, name in enumerate(rule if isinstance(rule, list) else ()):
        if names.index(name) is None:
            reading.bad(("parallel", index), f"one of several links between two nodes: {names.expected(name)}")
    joined: dict[frozenset[str], list[Link]] = {}
    for link in several if rule == "address" else ():
        joined.setdefault(frozenset((link.a, link.b)), []).append(link)
    for pair, own in joined.items():
        address = dialled((node for node in nodes.values() if node is not None), pair)
        if addressed(own, address) is None:
            between = " and ".join((own[0].a, own[0].b))
            found = f"{address}, in no subnet of the links between {between}" if address else f"no address of {between}"
            expected = f"an IP address of {own[0].a} or {own[0].b}, in the `subnet` of one of these links"
            reading.bad(("parallel",), expected, found)


def _wrong_path(names: list[str], nodes: Nodes, joined: set[frozenset[str]] | None) -> tuple[str, str] | None:
    """Return (found, expected) if the path along *names* is wrong, else None.

    *joined* has the pairs of nodes with a link; None if a link is invalid.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        return "", "names of nodes from end to end, at least two, each once"
    for name in names:
        if name not in nodes:
            return f"unknown node {name!r}", nearest(name, nodes)
    for name in (names[0], names[-1]):
        if (node := nodes[name]) is not None and node.kind == "switch":
            return f"the switch {name} at an end", "workers or hosts at both ends"
    for name in names[1:-1]:
        if (node := nodes[name]) is not None and not node.gateway:
            return f"a route through {name}, which forwards nothing", "gateways and switches between the ends"
    for a, b in pairwise(names):
        if joined is not None and frozenset((a, b)) not in joined:
            return f"no link between {a} and {b}", "nodes that links join"
    return None
