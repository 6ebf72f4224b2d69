"""Read networks of SNDlib, native and XML. Their capacities have no unit, so they are not read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simcluster.errors import UsageError
from simcluster.topology.read.formats.cluster import Attributes, ForeignCluster, distinct_names, of_graph, renamed
from simcluster.topology.read.formats.safe_xml import parse_xml


def read_sndlib(text: str, file: str) -> ForeignCluster:
    """Return the cluster of an SNDlib network."""
    if text.lstrip().startswith("?"):
        nodes, ends = _native(text, file)
    else:
        root = parse_xml(text, file, "SNDlib")
        nodes = [str(node.get("id")) for node in root.iter("node")]
        ends = [(_text(link, "source"), _text(link, "target")) for link in root.iter("link")]
    if len(set(nodes)) < len(nodes):
        raise UsageError("NODES", "a second node of one name", "each name once", file)
    names = distinct_names(dict(zip(nodes, nodes, strict=True)))
    for index, pair in enumerate(ends):
        if unknown := [end for end in pair if end not in names]:
            raise UsageError(f"LINKS[{index}]", f"the end {unknown[0]!r}", "the name of a node", file)
    edges: list[tuple[Sequence[str], Attributes]] = [((names[a], names[b]), {}) for a, b in ends]
    found = of_graph({}, [(names[node], {}) for node in nodes], edges, add_up=True)
    found.warnings[:0] = renamed(nodes)
    found.warnings.append(f"ignored on {len(edges)} links: capacities and costs, which have no unit; on nodes: places")
    return found


def _text(link: Any, tag: str) -> str:
    return (link.findtext(tag) or "").strip()


def _native(text: str, file: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return (nodes, ends of links) of the native form: a line each, in sections with brackets."""
    nodes: list[str] = []
    ends: list[tuple[str, str]] = []
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].replace("(", " ( ").replace(")", " ) ").split()
        if not section:
            section = words[0] if words[1:] == ["("] else ""
        elif words == [")"]:
            section = ""
        elif words and section == "NODES":
            if len(words) != 5 or (words[1], words[4]) != ("(", ")"):
                raise UsageError("NODES", "another line", "NAME ( LONGITUDE LATITUDE )", file, number)
            nodes.append(words[0])
        elif words and section == "LINKS":
            if len(words) < 5 or (words[1], words[4]) != ("(", ")"):
                raise UsageError("LINKS", "another line", "NAME ( FROM TO ) and numbers", file, number)
            ends.append((words[2], words[3]))
    if section or not nodes:
        raise UsageError("SNDlib", "no NODES, or a section that does not end", "NODES ( ... ) and LINKS ( ... )", file)
    return nodes, ends
