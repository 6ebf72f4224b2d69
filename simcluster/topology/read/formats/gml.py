"""Read GML as it is published: labels may be missing or shared, edges may be doubled."""

from __future__ import annotations

import html
import re
from typing import Any

from simcluster.documents.yaml_errors import MAX_DEPTH
from simcluster.errors import UsageError, raise_all
from simcluster.topology.read.formats.cluster import ForeignCluster, directed, distinct_names, of_graph, renamed

_TOKEN = re.compile(r'#[^\n]*|"[^"]*"|[\[\]]|[^\s\[\]"]+|"')
Pairs = list[tuple[str, Any]]
"""The (key, value) of a block; the value of a key with a block is Pairs, too."""


def read_gml(text: str, file: str) -> ForeignCluster:
    """Return the cluster of a GML file; nodes are called by their labels, if necessary with their ids."""
    graphs = [value for key, value in _parsed(text, file) if key == "graph" and isinstance(value, list)]
    if len(graphs) != 1:
        raise UsageError("GML", f"{len(graphs)} graphs", "GML: one block `graph [ ... ]`", file)
    (graph,) = graphs
    about = dict(graph)
    nodes = [dict(value) for key, value in graph if key == "node" and isinstance(value, list)]
    edges = [dict(value) for key, value in graph if key == "edge" and isinstance(value, list)]
    ids = [node.get("id") for node in nodes]
    raise_all(directed(file) if about.get("directed") == 1 else [])
    earlier: set[Any] = set()
    for index, one in enumerate(ids):
        if one is None or isinstance(one, list) or not earlier.isdisjoint((one, str(one))):
            found = "no id" if one is None else "a block as id" if isinstance(one, list) else f"the id {one} again"
            raise UsageError(f"node[{index}]", found, "one id", file)
        earlier |= {one, str(one)}  # 1 equals 1.0, and "1" is written like 1
    labels = {key: str(node.pop("label", "")) or str(key) for key, node in zip(ids, nodes, strict=True)}
    names = distinct_names(labels)
    ends = [(edge.pop("source", None), edge.pop("target", None)) for edge in edges]
    for index, pair in enumerate(ends):
        for end in pair:
            if isinstance(end, list) or end not in names:
                what = "a block as an end" if isinstance(end, list) else f"the end {end}"
                raise UsageError(f"edge[{index}]", what, "the id of a node", file)
    cluster = of_graph(
        about | {"name": str(about.get("label") or about.get("Network") or "")},
        [(names[key], node) for key, node in zip(ids, nodes, strict=True)],
        [((names[a], names[b]), edge) for (a, b), edge in zip(ends, edges, strict=True)],
        file=file,
        add_up=True,
    )
    cluster.notes.insert(0, "names are labels, with the id where several have one")
    cluster.warnings[:0] = renamed(labels.values())
    return cluster


def _parsed(text: str, file: str) -> Pairs:
    """Return the (key, value) pairs of GML *text*. Raise UsageError, with a line, if it is wrong."""
    whole: Pairs = []
    blocks = [whole]
    key: str | None = None
    for found in _TOKEN.finditer(text):
        part = found[0]
        if part[0] == "#":
            continue
        wrong = part == '"' or (part == "]" and (key is not None or len(blocks) == 1)) or len(blocks) > MAX_DEPTH
        if wrong or (key is None and part != "]" and not re.fullmatch(r"[A-Za-z_]\w*", part)):
            line = text.count("\n", 0, found.start()) + 1
            raise UsageError("GML", repr(part[:40]), "a key and its value, or a ] that ends a block", file, line)
        if part == "]":
            blocks.pop()
        elif key is None:
            key = part
        else:
            value = [] if part == "[" else _value(part)
            blocks[-1].append((key, value))
            blocks += [value] if part == "[" else []
            key = None
    if len(blocks) > 1 or key is not None:
        raise UsageError("GML", "the end of the file", "a ] for each [", file, text.count("\n") + 1)
    return whole


def _value(part: str) -> Any:
    if part[0] == '"':
        return html.unescape(part[1:-1])
    for number in (int, float):
        try:
            return number(part)
        except ValueError:
            continue
    return part
