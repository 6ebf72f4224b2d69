"""Turn networkx graphs, GraphML files and node-link JSON into the document that YAML gives.

Attributes of nodes and edges are the keys of the YAML file, with the same units; others are ignored, and a log line
names them. As GraphML has no mappings, a straggler is written `straggler.kind`, `straggler.factor` and so on, a
measured kind of work `profile.mnist_mlp/gradient`.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx

from simcluster.documents.graph_names import node_name
from simcluster.documents.yaml import Document, describe, read_text
from simcluster.documents.yaml_errors import MAX_DEPTH
from simcluster.errors import Problem, UsageError, closest, raise_all
from simcluster.topology.read.links import LINK_KEYS
from simcluster.topology.read.network import NETWORK_KEYS
from simcluster.topology.read.nodes import HostBlock, NodeBlock

log = logging.getLogger("simcluster.topology")

Attributes = Mapping[str, Any]

_OWN: Mapping[str, frozenset[str]] = {
    "node": frozenset((*NodeBlock.known.names, *HostBlock.known.names)),
    "edge": frozenset(LINK_KEYS),
}
_WITH_UNIT = re.compile(r"(?:(?:bandwidth|capacity)_([kmg]?bps)|(?:latency|delay)_([num]?s))")

_NAMED, _LISTED = 5, 20
"""Limits on the nodes and the attributes that a log line names."""


class GraphDocument(dict[str, Any]):
    """The document of a graph, which knows nothing of files."""


def load_graphml(path: Path) -> Document:
    """Return the document of a GraphML file. Raise UsageError if it is not one."""
    text = read_text(path)
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        # Entities can make a small XML file expand into a huge one.
        raise UsageError(Problem("GraphML", "a DOCTYPE or an entity", "plain GraphML", str(path)))
    try:
        problems = _unnamed(text, str(path))
        graph = None if problems else networkx.parse_graphml(text)
    except (networkx.NetworkXError, SyntaxError, KeyError, ValueError, StopIteration) as error:
        # ElementTree's ParseError is a SyntaxError that knows its line and column.
        line, column = getattr(error, "position", (None, None))
        reason = str(error) or type(error).__name__
        raise UsageError(Problem("GraphML", "", f"GraphML: {reason}", str(path), line, column)) from None
    if graph is None:
        raise UsageError(problems)
    return Document(from_graph(graph, str(path)), str(path))


def load_node_link(path: Path) -> Document:
    """Return the document of a JSON file in networkx's node-link form. Raise UsageError if it is not one."""
    text = read_text(path)
    try:
        data = json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        problem = Problem("JSON", "", f"JSON: {error.msg}", str(path), error.lineno, error.colno)
        raise UsageError(problem) from None
    except (ValueError, RecursionError) as error:
        reason = f"nesting of at most {MAX_DEPTH}" if isinstance(error, RecursionError) else str(error)
        raise UsageError(Problem("JSON", "", f"JSON: {reason}", str(path))) from None
    nodes = data.get("nodes") if isinstance(data, dict) else None
    edges = data.get("edges", data.get("links")) if isinstance(data, dict) else None
    if not isinstance(nodes, list) or not isinstance(edges, list):
        expected = "node-link data: an object with lists nodes and edges"
        raise UsageError(Problem("JSON", describe(data), expected, str(path)))
    about = data.get("graph") if isinstance(data.get("graph"), dict) else {}
    problems: list[Problem] = []
    named = [(node_name(name), rest) for (name,), rest in _named(nodes, "nodes", ("id",), str(path), problems)]
    ids = [node["id"] for node in nodes if isinstance(node, dict) and type(node.get("id")) in (str, int)]
    joined = _named(edges, "edges", ("source", "target"), str(path), problems)
    joined = [((node_name(a), node_name(b)), rest) for (a, b), rest in joined]
    problems += _directed(str(path)) if data.get("directed") else []
    problems += _twice(ids, str(path))
    raise_all(problems)
    return Document(_document(about, named, joined), str(path))


def from_graph(graph: networkx.Graph[Any], file: str | None = None) -> dict[str, Any]:
    """Return the document of a networkx graph, with names as `node_name` makes them. Raise UsageError if it is
    directed, or if two nodes would have one name.
    """
    nodes = [(node_name(node), data) for node, data in graph.nodes(data=True)]
    problems = (_directed(file) if graph.is_directed() else []) + _twice(graph.nodes, file)
    raise_all(problems)
    edges = [((node_name(a), node_name(b)), attributes) for a, b, attributes in graph.edges(data=True)]
    return _document(graph.graph, nodes, edges)


def _twice(nodes: Iterable[Any], file: str | None) -> list[Problem]:
    """Return a problem for each of *nodes* with the name of an earlier one, and log which are written differently."""
    first: dict[str, Any] = {}
    nodes = list(nodes)
    changed = [
        f"{node!r:.40} is {node_name(node):.40}" for node in nodes if isinstance(node, str) and node_name(node) != node
    ]
    if changed:
        more = f", and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        log.warning("names of nodes have letters, digits, _ and -: %s%s", ", ".join(changed[:_NAMED]), more)
    problems = []
    for index, node in enumerate(nodes):
        name = node_name(node)
        if name in first:
            both = "" if node == first[name] else f": {first[name]!r} and {node!r}"
            problems.append(Problem(f"nodes[{index}]", f"a second node called {name}{both}", "one", file))
        first.setdefault(name, node)
    return problems


def _unnamed(graphml: str, file: str) -> list[Problem]:
    """Return a problem for each node without a name, or with that of an earlier one; networkx would merge those."""
    elements = ElementTree.fromstring(graphml).iter()  # noqa: S314 - it has no entities
    ids = [element.get("id") for element in elements if element.tag.rpartition("}")[2] == "node"]
    nameless = [
        Problem(f"nodes[{index}]", "a node without an id", "its name as id", file)
        for index, found in enumerate(ids)
        if not found
    ]
    return nameless or _twice([found for found in ids if found], file)


def from_networkx_document(graph: networkx.Graph[Any], device: Any, link: Attributes) -> dict[str, Any]:
    """Return the document of a networkx graph. Nodes get what they lack of *device*, edges of *link*."""
    if not hasattr(graph, "nodes"):
        found, expected = type(graph).__name__, "a graph of networkx; of a matrix: networkx.from_numpy_array(matrix)"
        raise UsageError(Problem("graph", f"a {found}", expected))
    document = from_graph(graph)
    own = device if isinstance(device, dict) else {"device": device} if device is not None else {}
    for name, keys in document["nodes"].items():
        if keys.keys().isdisjoint(("device", "flops")) and keys.get("kind", "worker") == "worker":
            document["nodes"][name] = own | keys
    given = {key: value for key, value in link.items() if value is not None}
    document["links"] = [{**({} if "type" in keys else given), **keys} for keys in document["links"]]
    return document


def _document(
    about: Attributes, nodes: Iterable[tuple[str, Attributes]], edges: Iterable[tuple[tuple[str, ...], Attributes]]
) -> dict[str, Any]:
    head = {key: about[key] for key in ("name", "description", *NETWORK_KEYS) if about.get(key)}
    ignored: Counter[tuple[str, str]] = Counter()
    named = {name: _kept(_unflatten(attributes), "node", ignored) for name, attributes in nodes}
    links = [{"between": list(ends), **_kept(_unflatten(keys), "edge", ignored)} for ends, keys in edges]
    if ignored:
        words = [f"{name:.40} ({times} {what}{'s'[: times - 1]})" for (name, what), times in ignored.items()]
        more = f", and {len(words) - _LISTED} more" if len(words) > _LISTED else ""
        log.warning("ignored attributes of the graph, no keys of a topology: %s%s", ", ".join(words[:_LISTED]), more)
    return GraphDocument({**head, "nodes": named, "links": links})


def _kept(attributes: Attributes, what: str, ignored: Counter[tuple[str, str]]) -> dict[str, Any]:
    """Return the *attributes* that are keys, or are misspelt ones; count the others. A number under a name with its
    unit, such as latency_ms, is the value of a key.
    """
    keys: dict[str, Any] = {}
    for name, value in attributes.items():
        unit = _WITH_UNIT.fullmatch("bandwidth_bps" if name == "LinkSpeedRaw" else name.lower())
        if _is_key(name, what):
            keys[name] = value
        elif what == "edge" and unit is not None and type(value) in (int, float):
            key, scale = ("bandwidth", unit[1].replace("m", "M").replace("g", "G")) if unit[1] else ("latency", unit[2])
            keys.setdefault(key, f"{value:.15g} {scale}")
        else:
            ignored[name, what] += 1
    return keys


@lru_cache(maxsize=1024)
def _is_key(name: str, what: str) -> bool:
    """Return whether *name* is a key, or a misspelt one."""
    return name in _OWN[what] or closest(name.lower(), _OWN[what], cutoff=0.8) is not None


def summed(problems: Sequence[Problem]) -> list[Problem]:
    """Return the *problems* of a graph's document, with one for all nodes and edges without what a run needs."""
    nodes = [one for one in problems if one.found == "no device"]
    edges = [one for one in problems if one.found == "nothing" and one.key.endswith(("].bandwidth", "].latency"))]
    if not nodes and not edges:
        return list(problems)
    lacks = [f"{len(nodes)} node{'s' if len(nodes) > 1 else ''} without a device"] if nodes else []
    for key in ("bandwidth", "latency"):
        times = sum(one.key.endswith(key) for one in edges)
        lacks += [f"{times} edge{'s' if times > 1 else ''} without a {key}"] if times else []
    expected = "these as attributes, or in Python Topology.from_networkx(graph, device='raspberry-pi-5', "
    expected += "bandwidth='1 Gbps', latency='1 ms'), which gives them to all that lack them"
    rest = [one for one in problems if one not in nodes and one not in edges]
    return [Problem("graph", ", ".join(lacks), expected, (nodes or edges)[0].file), *rest]


def _unflatten(attributes: Attributes) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in attributes.items():
        _put(plain, str(key), value)
    # networkx adds the edge's number in a multigraph, and GraphML the edge's id, as attributes.
    return {key: value for key, value in plain.items() if key not in ("id", "key")}


def _put(place: dict[str, Any], key: str, value: Any) -> None:
    """Put *value* at the dotted *key*; if another value is in the way, under the key as written."""
    outer, _, inner = key.partition(".")
    if inner and isinstance(place.setdefault(outer, {}), dict):
        _put(place[outer], inner, value)
    else:
        place[key] = value


def _named(
    entries: list[Any], where: str, keys: tuple[str, ...], file: str, problems: list[Problem]
) -> list[tuple[tuple[str, ...], Attributes]]:
    named: list[tuple[tuple[str, ...], Attributes]] = []
    for index, entry in enumerate(entries):
        ends = [entry.get(key) if isinstance(entry, dict) else None for key in keys]
        if all(type(end) in (str, int) for end in ends):
            rest = {key: value for key, value in entry.items() if key not in keys}
            named.append((tuple(str(end) for end in ends), rest))
        else:
            expected = f"an object with {' and '.join(keys)}, each text or a whole number"
            found = describe(entry)
            if isinstance(entry, dict) and entry:
                found += f" ({', '.join(f'{key}: {describe(value)}' for key, value in islice(entry.items(), 3))})"
            problems.append(Problem(f"{where}[{index}]", found, expected, file))
    return named


def _directed(file: str | None) -> list[Problem]:
    expected = "an undirected one: a link carries both ways (duplex: full, half or free)"
    return [Problem("graph", "a directed graph", expected, file)]


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return dict(pairs)
