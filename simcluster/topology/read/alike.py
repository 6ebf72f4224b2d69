"""Topologies of many equal nodes and links: one of each kind is read, and the others are copies of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

from simcluster.errors import UsageError
from simcluster.topology.model.model import Link, Node, Topology
from simcluster.topology.presets.generators import TopologyShape

HEAD = ("name", "description")
"""Keys of a document that do not refer to its nodes and links."""


def alike(shape: TopologyShape, check: Callable[[dict[str, Any]], Topology]) -> Topology | None:
    """Return the topology that *check* would read from the document of *shape*; None if only reading can tell.

    Its source is a sample. Names that are the same twice, and nodes without a path to the others, are not looked for:
    no generator makes any.
    """
    if any(key not in HEAD for key in shape.head):
        return None
    sample = _sample(shape)
    try:
        read = check(sample.document())
    except UsageError:
        return None  # all problems are to be reported, with their places
    if read.nodes.keys() != sample.nodes.keys() or read.document != sample.document():
        return None  # a node stands for several processes, or names a file with content that belongs in the document
    of_node = {id(keys): _after(read.nodes[name], 1) for name, keys in sample.nodes.items()}
    of_link = {id(keys): _after(link, 2) for (_, _, keys), link in zip(sample.links, read.links, strict=True)}
    nodes = {name: Node(name, *of_node[id(keys)]) for name, keys in shape.nodes.items()}
    links = tuple([Link(a, b, *of_link[id(keys)]) for a, b, keys in shape.links])
    return replace(read, nodes=nodes, links=links)


def _sample(shape: TopologyShape) -> TopologyShape:
    """Return a part of *shape* with each kind of link between each two kinds of nodes, and each kind of node."""
    nodes: dict[str, Mapping[str, Any]] = {}
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
