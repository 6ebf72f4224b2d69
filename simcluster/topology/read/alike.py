"""Read a topology of many equal nodes and links fast: read one of each kind, and copy it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from simcluster.errors import UsageError
from simcluster.topology.model.link import Link
from simcluster.topology.model.model import Node, Topology
from simcluster.topology.presets.generators import KeyValues, TopologyShape

HEAD = ("name", "description")
"""The keys of a document that do not refer to its nodes and links."""


def alike(shape: TopologyShape, check: Callable[[dict[str, Any]], Topology]) -> Topology | None:
    """Return the topology that *check* would read from the whole document of *shape*.

    Return None if the whole document must be read. The `source` of the result is only a sample.
    Duplicate names and unreachable nodes are not searched for, since no generator makes them.
    """
    if any(key not in HEAD for key in shape.head):
        return None
    sample = _sample(shape)
    try:
        read = check(sample.document())
    except UsageError:
        return None  # all problems are to be reported, with their positions
    if read.nodes.keys() != sample.nodes.keys() or read.document != sample.document():
        return None  # a node has several processes, or names a file to include
    of_node = {id(keys): _after(read.nodes[name], 1) for name, keys in sample.nodes.items()}
    of_link = {id(keys): _after(link, 2) for (_, _, keys), link in zip(sample.links, read.links, strict=True)}
    nodes = {name: Node(name, *of_node[id(keys)]) for name, keys in shape.nodes.items()}
    links = tuple([Link(a, b, *of_link[id(keys)]) for a, b, keys in shape.links])
    return replace(read, nodes=nodes, links=links)


def _sample(shape: TopologyShape) -> TopologyShape:
    """Return a part of *shape* with every kind of node, and every kind of link between kinds."""
    nodes: dict[str, KeyValues] = {}
    links, seen = [], set()
    for a, b, keys in shape.links:
        kind = (id(shape.nodes[a]), id(shape.nodes[b]), id(keys))
        if kind not in seen:
            seen.add(kind)
            links.append((a, b, keys))
            nodes |= {name: shape.nodes[name] for name in (a, b)}
    known = {id(keys) for keys in nodes.values()}
    for name, keys in shape.nodes.items():
        if id(keys) not in known:
            known.add(id(keys))
            nodes[name] = keys
    return shape._replace(nodes=nodes, links=links)


def _after(part: Node | Link, count: int) -> tuple[Any, ...]:
    """Return the values of the fields of *part* after the first *count*."""
    return tuple(getattr(part, field.name) for field in fields(part)[count:])
