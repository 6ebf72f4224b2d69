"""Read a topology from a file, a name, a dict or a graph, and report all its problems at once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import networkx
from pydantic import Field

from simcluster.documents.models import Block
from simcluster.documents.reading import DocumentReading
from simcluster.documents.recognise import recognise
from simcluster.documents.shipped import find
from simcluster.documents.values import Schema, ValueValidator, block, only, schema_of
from simcluster.documents.yaml import Document
from simcluster.documents.yaml import load as load_yaml
from simcluster.documents.yaml import loads as loads_yaml
from simcluster.errors import MOST_PROBLEMS, UsageError
from simcluster.spelling import closest
from simcluster.topology.model.model import Topology
from simcluster.topology.model.routing import cut_off
from simcluster.topology.read import foreign
from simcluster.topology.read.clients import ClientsBlock, put_clients
from simcluster.topology.read.defaults import as_overrides, fill
from simcluster.topology.read.formats import load_foreign
from simcluster.topology.read.formats.cluster import GraphDocument
from simcluster.topology.read.generated import GENERATOR, expand
from simcluster.topology.read.links import Ends, LinkBlock, read_links
from simcluster.topology.read.network import NetworkBlock, check_network
from simcluster.topology.read.nodes import NODE_NAME, LaunchBlock, LinkEnd, node_schema, read_nodes
from simcluster.topology.read.overrides import apply
from simcluster.topology.read.processes import with_processes
from simcluster.topology.read.spread import several_lengths
from simcluster.topology.read.traces import put_files

Source: TypeAlias = "str | Path | Mapping[str, Any] | networkx.Graph[Any] | Topology"

_MOST_CUT_OFF = 3
"""Limit on the unreachable workers that have an error each; more have one in common."""

_SCALARS = frozenset({str, int, float, bool, type(None)})

_Text = Annotated[str, only(lambda value: isinstance(value, str), "text", {"type": "string"})]
_NODES = "a mapping of nodes by name, at least one"
_nodes = only(lambda value: isinstance(value, dict) and bool(value), _NODES, {}, at_key=True)
_links = only(lambda value: isinstance(value, list), "a list of links", {}, at_key=True)


def _nodes_schema() -> Schema:
    names = {"pattern": f"^{NODE_NAME.pattern}$"}
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": names,
        "additionalProperties": node_schema(),
        "description": _NODES,
    }


class HeadBlock(Block):
    """The keys that describe any topology as a whole, or how its nodes are started."""

    name: _Text | None = None
    description: _Text = ""
    launch: Annotated[LaunchBlock, block(LaunchBlock)] | None = None


class TopologyBlock(NetworkBlock, HeadBlock):
    """A topology document. Its nodes and links, and those of its clients, are read one by one."""

    clients: Annotated[ClientsBlock, block(ClientsBlock)] | None = None

    nodes: Annotated[dict[str, Any], ValueValidator(_nodes, _nodes_schema)]
    links: Annotated[list[Any], ValueValidator(_links, {"type": "array", "items": schema_of(LinkBlock)})] = Field([])


def load(
    source: Source,
    *,
    overrides: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    device: str | dict[str, Any] | None = None,
    bandwidth: str | None = None,
    latency: str | None = None,
) -> Topology:
    """Return the topology at a path, of a shipped name, or of a dict, a networkx graph or a Topology.

    A path leads to YAML, or to a file of another tool that `simcluster.topology.read.formats` reads; a
    name is one of `shipped_names("topologies")` in simcluster.documents.shipped. *overrides* maps dotted keys to
    values that replace those of the source before it is checked: {"nodes.pi4.device":
    "raspberry-pi-5"}. Paths in a file are relative to its folder, those in a dict to *folder*.

    Nodes without a device get *device*, the name of a preset or the keys of a node. Links without a
    bandwidth or a latency get *bandwidth* and *latency*.

    Raise UsageError with every problem, each with its file, line and column.
    """
    is_file = isinstance(source, (str, Path))
    defaults = as_overrides({"device": device, "bandwidth": bandwidth, "latency": latency}, of_file=is_file)
    overrides = {**defaults, **(overrides or {})}
    if isinstance(source, (str, Path)):
        path = find("topologies", source)
        form = recognise(path)
        document = load_yaml(path, keep_duplicates=True) if form is None else load_foreign(path, form)
        return check(document, path.stem, overrides)
    if isinstance(source, Topology):
        return loads(source.document, overrides=overrides) if overrides else source
    if isinstance(source, networkx.Graph):
        source = foreign.from_graph(source)
    document = Document(_plain(source), folder=Path(folder) if folder is not None else None)
    return check(document, "topology", overrides)


def loads(
    text: str | Mapping[str, Any], file: str | None = None, *, overrides: Mapping[str, Any] | None = None
) -> Topology:
    """Return the topology of YAML text or a dict, like `load`. Errors call the source *file*."""
    if isinstance(text, str):
        return check(loads_yaml(text, file, keep_duplicates=True), "topology", overrides)
    return check(Document(_plain(text), file), "topology", overrides)


def _plain(data: Any) -> Any:
    """Return a copy of *data* as plain dicts and lists, which shares nothing with *data*."""
    if type(data) in _SCALARS:
        return data
    if isinstance(data, Mapping):
        made = {str(key): _plain(value) for key, value in data.items()}
        return GraphDocument(made) if isinstance(data, GraphDocument) else made
    return [_plain(value) for value in data] if isinstance(data, (list, tuple)) else copy.copy(data)


def check(document: Document, default_name: str, overrides: Mapping[str, Any] | None = None) -> Topology:
    """Return the topology of *document* with *overrides*; *default_name* is for one without a name."""
    if document.data is None and document.file is not None:
        expected = "a topology: nodes and links, or a generator; `simcluster new DIR` writes one to begin with"
        raise UsageError(document.problem((), found="an empty file", expected=expected))
    is_graph = isinstance(document.data, GraphDocument)
    if is_graph:
        document.data = dict(document.data)  # a run writes it as YAML, which knows no other mapping
    overrides = fill(document, overrides or {})
    duplicates = document.duplicate_problems()
    for position, duplicate in enumerate(document.duplicates):
        if len(duplicate.path) == 2 and duplicate.path[0] == "nodes":
            second, expected = (
                f"a second node called {duplicate.path[1]}",
                f"one (the first is on line {duplicate.first[0]})",
            )
            duplicates[position] = replace(duplicates[position], found=second, expected=expected)
    generated = None
    if isinstance(document.data, dict) and GENERATOR in document.data:
        given = document
        expanded = expand(document, overrides, loads)
        if isinstance(expanded, Topology):
            return replace(expanded, generated=_plain(given.data))
        document, overrides = expanded
        generated = _plain(given.data) if not overrides else None
    reading = DocumentReading(document)
    of_clients = {key: value for key, value in overrides.items() if key.startswith("clients.")}
    reading.problems = duplicates + apply(document, of_clients)
    put_clients(reading)
    reading.problems += apply(document, {key: overrides[key] for key in overrides if key not in of_clients})
    topology = _build(reading, default_name)
    if topology is None:
        # The sort is stable: problems without a line come last, in the order of discovery.
        reading.problems.sort(key=lambda problem: (problem.line is None, problem.line or 0, problem.column or 0))
        summed = partial(foreign.summed, of_file=document.file is not None) if is_graph else list
        raise UsageError(summed(reading.problems))
    split = with_processes(topology, document)
    if split is None:
        return topology if generated is None else replace(topology, generated=generated)
    return check(Document(split, folder=reading.folder), default_name, None)


def _build(reading: DocumentReading, default_name: str) -> Topology | None:
    document = reading.document
    put_files(reading)
    top = reading.read(TopologyBlock.read, ())
    if not isinstance(document.data, dict):
        return None
    document.data.setdefault("name", default_name)
    parts = read_nodes(reading)
    nodes = {name: part.node for name, part in parts.items()}
    links, ends = read_links(reading, nodes)
    check_network(reading, nodes, links)
    if nodes:
        _check_reach(reading, parts, ends)
    spreads = [part.spread for part in (*nodes.values(), *links) if part is not None]
    if lengths := several_lengths(spreads, (top.misfit, top.startup_s) if top else ()):
        reading.bad((), "lists of one length, an entry for each round of the calibration", lengths)
    if reading.problems or top is None:
        return None
    made = {name: node for name, node in nodes.items() if node is not None}
    if (launch := top.launch) is not None:
        for node in [node for node in made.values() if node.is_worker]:
            processes = node.processes if node.processes is not None else launch.processes
            made[node.name] = replace(node, command=node.command or launch.words, processes=processes)
    return Topology(
        str(document.data["name"] or default_name),
        made,
        tuple(link for link in links if link is not None),
        top.description,
        source=_plain(document.data),
        **top.facts(),
    )


def _check_reach(reading: DocumentReading, nodes: Mapping[str, LinkEnd], given: list[Ends | None]) -> None:
    """Report workers that cannot reach all others; read a misspelt end as the most similar node."""
    if len(reading.problems) > MOST_PROBLEMS:
        return
    ends = [tuple(_meant(end, nodes) for end in pair or (None,)) for pair in given]
    if any(None in pair for pair in ends):
        return
    gateways = frozenset(name for name, node in nodes.items() if node.gateway)
    workers = [name for name, node in nodes.items() if node.is_worker]
    cut = cut_off(workers, [(str(a), str(b)) for a, b in ends], gateways)
    expected = "links that connect all workers, through switches and gateways if need be"
    if len(cut) > _MOST_CUT_OFF:
        gone = frozenset(cut)
        main = [name for name in workers if name not in gone]
        found = f"no route from {_some(cut)} to {'each other' if not main else f'all of {_some(main)}'}"
        reading.bad(("nodes",), expected, found, at_key=True)
        return
    for name in cut:
        others = [other for other in workers if other != name]
        reading.bad(("nodes", name), expected, f"no route from {name} to all of {_some(others)}", at_key=True)


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _meant(end: str | None, nodes: Mapping[str, LinkEnd]) -> str | None:
    if end is None or end in nodes:
        return end
    return closest(end, nodes)
