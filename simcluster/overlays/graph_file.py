"""An overlay's setting from a file or a networkx graph: the mapping with its edges.

Nodes of a graph are ranks or names of workers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx

from simcluster.errors import nearest
from simcluster.overlays.shapes import Graph, Misfit

MOST_BYTES = 64 * 2**20
INVALID = (ValueError, TypeError, KeyError, SyntaxError, StopIteration, RecursionError, networkx.NetworkXError)
"""Errors of json and networkx for a file with other content."""


def from_file(path: Path) -> dict[str, Any]:
    """Return the setting equivalent to the file at *path*. Raise Misfit with what the file should have been."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise Misfit(f"a file of at most {MOST_BYTES // 2**20} MiB at {path}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misfit(f"a file that can be read: {error}") from None
    if path.suffix not in (".json", ".graphml", ".xml"):
        raise Misfit(f"GraphML (.graphml) or node-link JSON (.json), not {path.suffix or 'a file without a suffix'}")
    kind = "node-link JSON" if path.suffix == ".json" else "GraphML"
    if kind == "GraphML" and ("<!DOCTYPE" in text or "<!ENTITY" in text):  # entities can expand into a huge file
        raise Misfit(f"plain GraphML at {path}, without a DOCTYPE or an entity")
    try:
        return from_graph(_node_link(text) if kind == "node-link JSON" else networkx.parse_graphml(text))
    except INVALID as error:
        raise Misfit(f"{kind} at {path} ({type(error).__name__}: {error})") from None


def from_graph(graph: Graph) -> dict[str, Any]:
    """Return the setting equivalent to a networkx *graph*: {kind: edges, ...}."""
    pairs = [[end if _is_rank(end) else str(end) for end in pair] for pair in graph.edges()]
    return {"kind": "edges", "edges": pairs, "directed": graph.is_directed()}


def ranks_of(edges: Sequence[Any], names: Sequence[str]) -> list[list[int]]:
    """Return *edges* between ranks and *names* of workers as pairs of ranks. Raise Misfit for an unknown name."""
    numbers = {name: rank for rank, name in enumerate(names)}
    pairs = []
    for edge in edges:
        if not isinstance(edge, (list, tuple)) or len(edge) != 2:
            raise Misfit(f"edges with two ends, not {edge!r}")
        pairs.append([_rank(end, numbers) for end in edge])
    return pairs


def _rank(label: Any, numbers: Mapping[str, int]) -> int:
    if isinstance(label, str) and label in numbers:
        return numbers[label]
    if _is_rank(label):
        return int(label)
    if isinstance(label, str) and label.isdecimal():
        return int(label)
    raise Misfit(f"ranks or workers as ends of edges, not {label!r}: {nearest(str(label), numbers)}")


def _is_rank(node: Any) -> bool:
    return isinstance(node, int) and not isinstance(node, bool)


def _node_link(text: str) -> Graph:
    data = json.loads(text)
    graph: Graph = networkx.node_link_graph(data, edges="edges" if "edges" in data else "links")
    return graph
