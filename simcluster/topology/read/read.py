"""Read a topology from a file, a name, a dict or a graph, and report everything wrong with it at once."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import networkx
from pydantic import Field, PlainValidator

from simcluster.documents.models import Block, Wrong, read
from simcluster.documents.shipped import find
from simcluster.documents.values import only
from simcluster.documents.yaml import Document
from simcluster.documents.yaml import load as load_yaml
from simcluster.documents.yaml import loads as loads_yaml
from simcluster.errors import MOST_CHARACTERS, MOST_COMPARED, MOST_PROBLEMS, Problem, UsageError, nearest
from simcluster.topology.model import reach
from simcluster.topology.model.model import Link, Node, Topology
from simcluster.topology.presets.generators import MOST_WORKERS
from simcluster.topology.read import foreign
from simcluster.topology.read.generated import expand, is_generated
from simcluster.topology.read.launch import LaunchBlock
from simcluster.topology.read.links import LinkBlock, read_ends
from simcluster.topology.read.network import NetworkBlock, check_network
from simcluster.topology.read.nodes import Part, read_node
from simcluster.topology.read.overrides import apply
from simcluster.topology.read.processes import clashes, with_processes
from simcluster.topology.read.spread import several_lengths
from simcluster.topology.read.traces import put_files

Source: TypeAlias = "str | Path | Mapping[str, Any] | networkx.Graph[Any] | Topology"

_SCALARS = frozenset({str, int, float, bool, type(None)})

Ends: TypeAlias = "tuple[str, str]"

_Text = Annotated[str, only(lambda value: isinstance(value, str), "text")]
_NODES = "a mapping of nodes by name, at least one"


class _Head(Block):
    name: _Text | None = None
    description: _Text = ""
    launch: Annotated[LaunchBlock, PlainValidator(LaunchBlock.read)] | None = None


class TopologyBlock(NetworkBlock, _Head):
    """A topology document; its nodes and links are read one by one."""

    nodes: Annotated[dict[str, Any], only(lambda value: isinstance(value, dict) and bool(value), _NODES, at_key=True)]
    links: Annotated[list[Any], only(lambda value: isinstance(value, list), "a list of links", at_key=True)] = Field([])


def load(source: Source, *, overrides: Mapping[str, Any] | None = None, folder: str | Path | None = None) -> Topology:
    """Return the topology at a path, of a shipped name, or of a dict, a networkx graph or a Topology.

    A path ends in .yaml, .yml, .json (networkx's node-link data) or .graphml; a name is one of
    `shipped_names("topologies")` in simcluster.documents.shipped. *overrides* maps dotted keys to values that replace
    those of the source before it is checked: {"nodes.pi4.device": "raspberry-pi-5"}. Paths in a file are relative to
    its folder, those in a dict to *folder*.

    Raise UsageError with every problem, each with its file, line and column.
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
    """Do the same as `load`, from YAML text or a dict; *file* is the name used in errors."""
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
    """Copy *data* as plain dicts and lists, so that later changes of one do not reach the other."""
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
        # Stable: problems without a line stay in the order of discovery, after those with one.
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
    """Return the topology, or None if *problems* got longer."""
    before = len(problems)
    put_files(document, problems)
    top = read(TopologyBlock.read, document, (), problems)
    if not isinstance(document.data, dict):
        return None
    document.data.setdefault("name", default_name)
    nodes = _read_nodes(document, problems)
    links, ends = _read_links(document, nodes, problems)
    check_network(document, {name: part.node for name, part in nodes.items()}, links, problems)
    if nodes:
        _check_reach(document, nodes, ends, problems)
    spreads = [part.spread for part in (*(part.node for part in nodes.values()), *links) if part is not None]
    if lengths := several_lengths(spreads, (top.misfit, top.startup_s) if top else ()):
        expected = "lists of one length, an entry for each round of the calibration"
        problems.append(document.problem((), found=lengths, expected=expected))
    if len(problems) > before or top is None:
        return None
    return Topology(
        str(document.data["name"] or default_name),
        {name: _launched(part.node, top.launch) for name, part in nodes.items()},
        tuple(link for link in links if link is not None),
        top.description,
        document=_plain(document.data),
        **top.facts(),
    )


def _launched(node: Node | None, launch: LaunchBlock | None) -> Node:
    """Return *node*, with *launch* as the default for its command."""
    assert node is not None, "a part without problems was read"
    if launch is None or not node.is_worker:
        return node
    processes = node.processes if node.processes is not None else launch.processes
    return replace(node, command=node.command or launch.words, processes=processes)


def _read_nodes(document: Document, problems: list[Problem]) -> dict[str, Part]:
    given = document.data.get("nodes")
    if not isinstance(given, dict) or not given:
        return {}
    nodes = {name: Part(read_node(document, name, problems), given[name]) for name in given}
    if not any(part.may_be_worker or (part.node is not None and part.node.is_host) for part in nodes.values()):
        expected = "at least one worker: a node with a device"
        problems.append(document.problem(("nodes",), found="switches only", expected=expected, at_key=True))
    return nodes


def _read_links(
    document: Document, nodes: Mapping[str, Part], problems: list[Problem]
) -> tuple[list[Link | None], list[Ends | None]]:
    """Return (links, their ends), None for what could not be read."""
    given = document.data.get("links")
    given = given if isinstance(given, list) else []
    blocks = [read(LinkBlock.read, document, ("links", index), problems) for index in range(len(given))]
    ends = [_ends(link) if block is None else block.between for link, block in zip(given, blocks, strict=True)]
    first: dict[frozenset[str], int] = {}
    names: dict[str, int] = {}
    for index, pair in enumerate(ends):
        if len(problems) > MOST_PROBLEMS:
            break
        if pair is not None and _check_ends(document, index, pair, nodes, problems):
            _check_twice(document, index, pair, first, names, problems)
    return [None if block is None else block.link() for block in blocks], ends


def _ends(link: Any) -> Ends | None:
    try:
        return read_ends(link["between"])
    except (Wrong, TypeError, KeyError):
        return None


def _check_ends(document: Document, index: int, ends: Ends, nodes: Mapping[str, Part], problems: list[Problem]) -> bool:
    for position, end in enumerate(ends):
        if end not in nodes and nodes:
            problems.append(
                document.problem(
                    ("links", index, "between", position), found=f"unknown node {end!r}", expected=nearest(end, nodes)
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
    ends: Ends,
    first: dict[frozenset[str], int],
    names: dict[str, int],
    problems: list[Problem],
) -> None:
    """Report two links between the same nodes, or with the same name: a-b to c and a to b-c are both called a-b-c."""
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
    document: Document, nodes: Mapping[str, Part], given: list[Ends | None], problems: list[Problem]
) -> None:
    """Report workers that cannot reach every other. A misspelt end is taken for the most similar node."""
    if len(problems) > MOST_PROBLEMS:
        return
    ends = [tuple(_meant(end, nodes) for end in pair or (None,)) for pair in given]
    if any(None in pair for pair in ends):
        return
    gateways = frozenset(name for name, node in nodes.items() if node.gateway)
    workers = [name for name, node in nodes.items() if node.may_be_worker and not node.may_be_switch]
    for name in reach.cut_off(workers, [(str(a), str(b)) for a, b in ends], gateways)[:MOST_PROBLEMS]:
        others = [other for other in workers if other != name]
        problems.append(
            document.problem(
                ("nodes", name),
                found=f"no route from {name} to all of {_some(others)}",
                expected="links that connect all workers, through switches and gateways if need be",
                at_key=True,
            )
        )


def _meant(end: str | None, nodes: Mapping[str, Part]) -> str | None:
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
