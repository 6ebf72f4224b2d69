"""Read GraphML. As it has no mappings, a straggler is written as `straggler.kind`, `straggler.factor` and so on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simcluster.documents.graph_names import node_name
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.topology.read.formats.cluster import ForeignCluster, directed, of_graph, renamed, twice
from simcluster.topology.read.formats.safe_xml import parse_xml

_TYPES: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": lambda text: text.strip().lower() in ("true", "1"),
}


def read_graphml(text: str, file: str) -> ForeignCluster:
    """Return the cluster of a GraphML file; the names of nodes are their ids."""
    root = parse_xml(text, file, "GraphML")
    graphs = root.findall("graph")
    if root.tag != "graphml" or len(graphs) != 1:
        raise UsageError(
            "GraphML", f"<{root.tag}> with {len(graphs)} graphs", "GraphML: <graphml> with one graph", file
        )
    keys = {key.get("id"): key for key in root.findall("key")}
    (graph,) = graphs
    if root.find(".//hyperedge") is not None:
        raise UsageError("GraphML", "a hyperedge", "edges with two ends, through a node of kind switch", file)
    for one in graphs:  # the list grows: a group of yEd is a node with a graph of its own
        graphs += one.findall("node/graph")
    edges = [edge for one in graphs for edge in one.findall("edge")]
    ends = [(edge.get("source") or "", edge.get("target") or "") for edge in edges]
    joined = {end for pair in ends for end in pair}
    every = [node for one in graphs for node in one.findall("node")]
    nodes = [node for node in every if node.find("graph") is None or node.get("id") in joined]
    nameless = [
        Problem(f"nodes[{index}]", "a node without an id", "its name as id", file)
        for index, node in enumerate(nodes)
        if not node.get("id")
    ]
    ids = [node.get("id") for node in nodes]
    is_directed = any(one.get("edgedefault") == "directed" for one in graphs)
    is_directed |= any(edge.get("directed") == "true" for edge in edges)
    raise_all([*(directed(file) if is_directed else []), *(nameless or twice(ids, file))])
    found = of_graph(
        _data(graph, "graph", keys, file) | ({"name": graph.get("id")} if graph.get("id") else {}),
        [(node_name(node.get("id")), _data(node, "node", keys, file)) for node in nodes],
        [
            (tuple(map(node_name, pair)), _data(edge, "edge", keys, file))
            for pair, edge in zip(ends, edges, strict=True)
        ],
        file=file,
        add_up=True,
    )
    found.warnings[:0] = renamed(ids)
    if groups := len(every) - len(nodes):
        found.warnings.append(f"left out: {groups} {'group' if groups == 1 else 'groups'} of nodes without edges")
    return found


def _data(element: Any, what: str, keys: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return the attributes of *element*, with the defaults of *keys* for *what* and elements in general."""
    found = {
        key.get("attr.name", name): _value(key, default.text, file)
        for name, key in keys.items()
        if key.get("for") in (what, "all") and (default := key.find("default")) is not None
    }
    for data in element.findall("data"):
        key = keys.get(data.get("key"))
        if key is None:
            raise UsageError("GraphML", f"data with the key {data.get('key')!r}", "a key that the file declares", file)
        if data.text is not None and not len(data):
            found[key.get("attr.name", data.get("key"))] = _value(key, data.text, file)
    return found


def _value(key: Any, text: str | None, file: str) -> Any:
    kind = key.get("attr.type", "string")
    try:
        return _TYPES.get(kind, str)(text or "")
    except ValueError:
        raise UsageError("GraphML", f"{text!r} for {key.get('attr.name')!r}", f"a value of type {kind}", file) from None
