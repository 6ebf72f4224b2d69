"""Read JSON in networkx's node-link form, which d3 reads, too."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from simcluster.documents.graph_names import node_name
from simcluster.documents.yaml import describe
from simcluster.documents.yaml_errors import MAX_DEPTH
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.topology.read.formats.cluster import Attributes, ForeignCluster, directed, of_graph, renamed, twice


def read_node_link(text: str, file: str) -> ForeignCluster:
    """Return the cluster of a JSON file in node-link form. Raise UsageError if it is not one."""
    data = parse_json(text, file)
    nodes = data.get("nodes") if isinstance(data, dict) else None
    edges = data.get("edges", data.get("links")) if isinstance(data, dict) else None
    if not isinstance(nodes, list) or not isinstance(edges, list):
        expected = "node-link data: an object with lists nodes and edges"
        raise UsageError("JSON", describe(data), expected, file)
    if nodes and not any(isinstance(node, dict) and "id" in node for node in nodes):
        missing = "no node with an id, as in d3 before version 4, whose links count nodes"
        raise UsageError("nodes", missing, "an id in each node, which source and target name", file)
    about = data.get("graph") if isinstance(data.get("graph"), dict) else {}
    problems: list[Problem] = []
    named = [(name, rest) for (name,), rest in _named(nodes, "nodes", ("id",), file, problems)]
    ids = [id_ for node in nodes if isinstance(node, dict) and (id_ := _id(node.get("id"))) is not None]
    joined = _named(edges, "edges", ("source", "target"), file, problems)
    problems += directed(file) if data.get("directed") else []
    problems += twice(ids, file)
    raise_all(problems)
    found = of_graph(about, named, joined, file=file, add_up=True)
    found.warnings[:0] = renamed(ids)
    return found


def parse_json(text: str, file: str) -> Any:
    """Return the value of JSON *text*. Raise UsageError if it is wrong, or if a key stands twice."""
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates)
    except json.JSONDecodeError as error:
        problem = Problem("JSON", "", f"JSON: {error.msg}", file, error.lineno, error.colno)
        raise UsageError(problem) from None
    except (ValueError, RecursionError) as error:
        reason = f"nesting of at most {MAX_DEPTH}" if isinstance(error, RecursionError) else str(error)
        raise UsageError("JSON", "", f"JSON: {reason}", file) from None


def _named(
    entries: list[Any], where: str, keys: tuple[str, ...], file: str, problems: list[Problem]
) -> list[tuple[tuple[str, ...], Attributes]]:
    named: list[tuple[tuple[str, ...], Attributes]] = []
    for index, entry in enumerate(entries):
        ends = [_id(entry.get(key)) if isinstance(entry, dict) else None for key in keys]
        if None not in ends:
            rest = {key: value for key, value in entry.items() if key not in keys}
            named.append((tuple(map(node_name, ends)), rest))
        else:
            expected = f"an object with {' and '.join(keys)}, each text, a whole number or a list of these"
            found = describe(entry)
            if isinstance(entry, dict) and entry:
                found += f" ({', '.join(f'{key}: {describe(value)}' for key, value in islice(entry.items(), 3))})"
            problems.append(Problem(f"{where}[{index}]", found, expected, file))
    return named


def _id(value: Any) -> str | int | tuple[str | int, ...] | None:
    """Return *value* as an id of networkx, which writes a tuple as a list; None if it is none."""
    if isinstance(value, list) and value and all(type(part) in (str, int) for part in value):
        return tuple(value)
    return value if type(value) in (str, int) else None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return dict(pairs)
