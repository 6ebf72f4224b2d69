"""Reads a topology from a file, a name, a dict or a graph, and reports everything wrong with it at once."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import networkx

from simcluster.documents.fields import Fields
from simcluster.documents.shipped import find
from simcluster.documents.yaml import Document
from simcluster.documents.yaml import load as load_yaml
from simcluster.documents.yaml import loads as loads_yaml
from simcluster.errors import MOST_CHARACTERS, MOST_COMPARED, MOST_PROBLEMS, Problem, UsageError, nearest
from simcluster.topology.model import reach
from simcluster.topology.model.model import Link, Node, Topology
from simcluster.topology.presets.generators import MOST_WORKERS
from simcluster.topology.read import foreign
from simcluster.topology.read.generated import expand, is_generated
from simcluster.topology.read.launch import LAUNCH_KEYS, Launch, read_launch
from simcluster.topology.read.links import ReadLink, read_link
from simcluster.topology.read.network import NETWORK_KEYS, read_network
from simcluster.topology.read.nodes import ReadNode, read_node
from simcluster.topology.read.overrides import apply
from simcluster.topology.read.processes import clashes, with_processes
from simcluster.topology.read.spread import check_lengths

Source: TypeAlias = "str | Path | Mapping[str, Any] | networkx.Graph[Any] | Topology"

_SCALARS = frozenset({str, int, float, bool, type(None)})

TOP_KEYS = ("name", "description", "launch", *NETWORK_KEYS, "nodes", "links")


def load(source: Source, *, overrides: Mapping[str, Any] | None = None, folder: str | Path | None = None) -> Topology:
    """The topology at a path, of a shipped name, or of a dict, a networkx graph or a Topology.

    A path ends in .yaml, .yml, .json (networkx's node-link data) or .graphml; a name is one of
    `shipped_names("topologies")` in simcluster.documents.shipped. *overrides* maps dotted keys to values that replace
    those of the source before it is checked: {"nodes.pi4.device": "raspberry-pi-5"}. Paths inside a file start where it
    stands, those inside a dict in *folder*.

    Raises UsageError with every problem, each with its file, line and column.
    """
    if isinstance(source, (str, Path)):
        path = find("topologies", source)
        return _check(_open(path), path.stem, overrides)
    if isinstance(source, Topology):
        return loads(source.document, overrides=overrides) if overrides else source
    if isinstance(source, networkx.Graph):
        source = foreign.from_graph(source)
    document = Document(_plain(source), folder=Path(folder) if folder is not None else None)
    return _check(document, "topology", overrides)


def loads(
    text: str | Mapping[str, Any], file: str | None = None, *, overrides: Mapping[str, Any] | None = None
) -> Topology:
    """As `load`, from YAML text or a dict; *file* is the name used in errors."""
    if isinstance(text, str):
        return _check(loads_yaml(text, file, keep_duplicates=True), "topology", overrides)
    return _check(Document(_plain(text), file), "topology", overrides)


def _open(path: Path) -> Document:
    if path.suffix == ".graphml":
        return foreign.load_graphml(path)
    if path.suffix == ".json":
        return foreign.load_node_link(path)
    return load_yaml(path, keep_duplicates=True)


def _plain(data: Any) -> Any:
    """Copy *data* with dicts and lists only, so that no later change of either reaches the other."""
    if type(data) in _SCALARS:
        return data
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    return [_plain(value) for value in data] if isinstance(data, (list, tuple)) else copy.copy(data)


def _check(document: Document, default_name: str, overrides: Mapping[str, Any] | None) -> Topology:
    problems = _duplicates(document)
    if is_generated(document):
        document, overrides = expand(document, overrides or {}, loads)
    problems += apply(document, overrides or {})
    topology = _build(document, default_name, problems)
    if problems or topology is None:
        # Stable: problems without a line stay in the order of their discovery, behind those with one.
        problems.sort(key=lambda problem: (problem.line is None, problem.line or 0, problem.column or 0))
        raise UsageError(problems)
    counts = {name: node.processes for name, node in topology.nodes.items() if node.processes and node.processes > 1}
    if counts:
        processes = sum(counts.values())
        if processes > MOST_WORKERS:
            found, expected = f"{processes} processes in all", f"at most {MOST_WORKERS}"
            raise UsageError(document.problem(("launch", "nproc_per_node"), found=found, expected=expected))
        problems = clashes(topology.nodes, counts)
        if problems:
            raise UsageError(problems)
        made = with_processes(topology.document, topology.nodes, counts)
        return _check(Document(made, folder=document.folder_of(())), default_name, None)
    return topology


def _build(document: Document, default_name: str, problems: list[Problem]) -> Topology | None:
    """The topology, or None if *problems* got longer."""
    before = len(problems)
    fields = Fields(document, (), TOP_KEYS, problems)
    if not fields.is_mapping:
        return None
    for key in ("name", "description"):
        if fields.has(key) and not isinstance(fields.get(key), str):
            fields.problem(key, expected="text")
    document.data.setdefault("name", default_name)
    nodes = _with_launch(_read_nodes(fields, problems), _read_launch(fields, problems))
    links = _read_links(fields, nodes, problems)
    network = read_network(fields, {name: read.node for name, read in nodes.items()}, [read.link for read in links])
    parts = [*(read.node for read in nodes.values()), *(read.link for read in links)]
    check_lengths(fields, [part.spread for part in parts if part is not None], (network.misfit, network.startup_s))
    if nodes:
        _check_reach(document, nodes, links, problems)
    if len(problems) > before:
        return None
    return Topology(
        str(document.data["name"] or default_name),
        {name: _sound(read.node) for name, read in nodes.items()},
        tuple(_sound(read.link) for read in links),
        str(document.data.get("description") or ""),
        *network,
        _plain(document.data),
    )


def _sound(part: Any) -> Any:
    assert part is not None, "a part without problems was read"
    return part


def _read_nodes(fields: Fields, problems: list[Problem]) -> dict[str, ReadNode]:
    nodes = fields.data.get("nodes")
    if not isinstance(nodes, dict) or not nodes:
        fields.problem("nodes", expected="a mapping of nodes by name, one at least", at_key=True)
        return {}
    read = {name: read_node(fields.document, name, problems) for name in nodes}
    if not any(node.may_be_worker or (node.node is not None and node.node.is_host) for node in read.values()):
        fields.problem("nodes", found="switches only", expected="a worker at least: a node with a device", at_key=True)
    return read


def _read_launch(fields: Fields, problems: list[Problem]) -> Launch:
    """How the processes of all nodes are started that say nothing of their own."""
    if not fields.has("launch"):
        return Launch()
    return read_launch(Fields(fields.document, ("launch",), LAUNCH_KEYS, problems))


def _with_launch(nodes: dict[str, ReadNode], launch: Launch) -> dict[str, ReadNode]:
    def completed(node: Node | None) -> Node | None:
        if node is None or not node.is_worker:
            return node
        processes = node.processes if node.processes is not None else launch.nproc_per_node
        return replace(node, command=node.command or launch.command, processes=processes)

    if launch == Launch():
        return nodes
    return {name: read._replace(node=completed(read.node)) for name, read in nodes.items()}


def _read_links(fields: Fields, nodes: Mapping[str, ReadNode], problems: list[Problem]) -> list[ReadLink]:
    links = fields.data.get("links")
    if links is None:
        return []
    if not isinstance(links, list):
        fields.problem("links", expected="a list of links", at_key=True)
        return []
    read = [read_link(fields.document, index, problems) for index in range(len(links))]
    first: dict[frozenset[str], int] = {}
    names: dict[str, int] = {}
    for index, link in enumerate(read):
        if len(problems) > MOST_PROBLEMS:
            break
        if link.ends is not None and _check_ends(fields.document, index, link.ends, nodes, problems):
            _check_twice(fields.document, index, link.ends, first, names, problems)
    return read


def _check_ends(
    document: Document,
    index: int,
    ends: tuple[str, str],
    nodes: Mapping[str, ReadNode],
    problems: list[Problem],
) -> bool:
    for position, end in enumerate(ends):
        if end not in nodes and nodes:
            problems.append(
                document.problem(
                    ("links", index, "between", position),
                    found=f"the unknown node {end!r}",
                    expected=f"a node of this file: {nearest(end, nodes)}",
                )
            )
    if ends[0] == ends[1]:
        problems.append(
            document.problem(
                ("links", index, "between"), found=f"a link from {ends[0]} to itself", expected="two nodes"
            )
        )
        return False
    return all(end in nodes for end in ends)


def _check_twice(
    document: Document,
    index: int,
    ends: tuple[str, str],
    first: dict[frozenset[str], int],
    names: dict[str, int],
    problems: list[Problem],
) -> None:
    """Two links between the same nodes, or of one name: a-b to c and a to b-c are both called a-b-c."""
    name = "-".join(ends)
    same = first.setdefault(frozenset(ends), index)
    called = names.setdefault(name, index)
    if same == called == index:
        return
    earlier, found = (same, f"a second link between {ends[0]} and {ends[1]}")
    if same == index:
        earlier, found = (called, f"a second link called {name}")
    line = document.mark(("links", earlier))
    place = f"line {line[0]}" if line else f"links[{earlier}]"
    problems.append(document.problem(("links", index, "between"), found=found, expected=f"one (the first is {place})"))


def _check_reach(
    document: Document, nodes: Mapping[str, ReadNode], links: list[ReadLink], problems: list[Problem]
) -> None:
    """Every worker must reach every other. A misspelt end is taken for the node that it probably means."""
    if len(problems) > MOST_PROBLEMS:
        return
    ends = [tuple(_meant(end, nodes) for end in link.ends or (None,)) for link in links]
    if any(None in pair for pair in ends):
        return
    gateways = frozenset(name for name, node in nodes.items() if node.gateway)
    workers = [name for name, node in nodes.items() if node.may_be_worker and not node.may_be_switch]
    for name in reach.cut_off(workers, [(str(a), str(b)) for a, b in ends], gateways)[:MOST_PROBLEMS]:
        others = [other for other in workers if other != name]
        problems.append(
            document.problem(
                ("nodes", name),
                found=f"no way from {name} to all of {_some(others)}",
                expected="links, by way of switches and gateways, between all workers",
                at_key=True,
            )
        )


def _meant(end: str | None, nodes: Mapping[str, ReadNode]) -> str | None:
    if end is None or end in nodes:
        return end
    options = list(islice(nodes, MOST_COMPARED))
    return next(iter(difflib.get_close_matches(end[:MOST_CHARACTERS], options, n=1, cutoff=0.5)), None)


def _some(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _duplicates(document: Document) -> list[Problem]:
    problems = document.duplicate_problems()
    for position, duplicate in enumerate(document.duplicates):
        if len(duplicate.path) == 2 and duplicate.path[0] == "nodes":
            problems[position] = Problem(
                problems[position].key,
                f"a second node called {duplicate.path[1]}",
                f"one (the first is on line {duplicate.first[0]})",
                document.file,
                *duplicate.mark,
            )
    return problems


__all__ = ["Link", "Node", "Source", "Topology", "load", "loads"]
