"""Plain flows, read from a file: source, target, bytes and start time, without an algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from simcluster.documents.reading import Fields
from simcluster.documents.yaml import Document, load
from simcluster.errors import Problem, UsageError, raise_all
from simcluster.spelling import nearest
from simcluster.topology import Topology

KEYS = ("src", "dst", "bytes", "start")


@dataclass(frozen=True)
class PlainFlow:
    """A transfer of *size_bytes* from node *source* to node *target*, which starts at *start_s*."""

    source: str
    target: str
    size_bytes: float
    start_s: float = 0.0


def read_flows(path: str | Path, topology: Topology) -> list[PlainFlow]:
    """Return the flows of a JSON or YAML file, which has a list of {src, dst, bytes, start}.

    `start` is in seconds, by default 0. Raise UsageError with all problems, each with its line.
    """
    document = load(path)
    problems: list[Problem] = []
    if not isinstance(document.data, list):
        raise UsageError(document.problem((), expected="a list of {src, dst, bytes, start}"))
    flows = [_read(document, index, topology, problems) for index in range(len(document.data))]
    raise_all(problems)
    return [flow for flow in flows if flow is not None]


def _read(document: Document, index: int, topology: Topology, problems: list[Problem]) -> PlainFlow | None:
    before = len(problems)
    fields = Fields(document, (index,), KEYS, problems)
    if not fields.is_mapping:
        return None
    ends = [_node(fields, key, topology) for key in ("src", "dst")]
    size_bytes = _number(fields, "bytes", None)
    start_s = _number(fields, "start", 0.0)
    if len(problems) > before or size_bytes is None or start_s is None or None in ends:
        return None
    source, target = (str(end) for end in ends)
    if source == target:
        fields.problem("dst", found=repr(target), expected=f"another node than {source}")
        return None
    try:
        topology.route(source, target)
    except ValueError as error:
        fields.problem("dst", expected=str(error))
    return PlainFlow(source, target, size_bytes, start_s)


def _node(fields: Fields, key: str, topology: Topology) -> str | None:
    name = str(fields.get(key)) if fields.has(key) else None
    if name in topology.nodes:
        return name
    fields.problem(key, expected=f"a node of {topology.name}: {nearest(name or '', topology.nodes)}")
    return None


def _number(fields: Fields, key: str, default: float | None) -> float | None:
    """Return the number of bytes or seconds at *key*.

    Report a problem and return None if it is not a number, or if it is negative or not finite.
    """
    if not fields.has(key) and default is not None:
        return default
    value = fields.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    unit = "bytes" if key == "bytes" else "seconds"
    fields.problem(key, expected=f"a number of {unit} of at least 0, without a unit")
    return None
