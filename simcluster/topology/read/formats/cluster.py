"""What a file of another tool says, as keys of a topology, and the one table of foreign names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from simcluster.documents.graph_names import node_name
from simcluster.documents.values import extreme
from simcluster.errors import Problem, raise_all
from simcluster.spelling import closest
from simcluster.topology.presets.generators import Made
from simcluster.topology.presets.links import LINKS
from simcluster.topology.read.links import LINK_KEYS
from simcluster.topology.read.network import NETWORK_KEYS
from simcluster.topology.read.nodes import NODE_NAME, HostBlock, NodeBlock
from simcluster.units import UnitError, parse_bandwidth, parse_latency, write_bandwidth, write_latency

Attributes = Mapping[str, Any]

FOREIGN: Mapping[str, tuple[str, str]] = {
    "linkspeedraw": ("bandwidth", "bps"),  # the Topology Zoo
    "bw": ("bandwidth", ""),
    "capacity": ("bandwidth", ""),
    "delay": ("latency", ""),
    "lat": ("latency", ""),
}
"""Name of an edge's attribute, in lower case -> (key of a link, unit of a plain number; "" if it needs one)."""

_WITH_UNIT = re.compile(r"(?i:bandwidth|bw|capacity)_([kKmMgG]?)([bB])ps|(?i:latency|delay|lat)_((?i:[num]?s))")
"""Name of an attribute with its unit: Bps are bytes per second, bps are bits."""

_KINDS = ("worker", "switch", "host")
_WORDS: Mapping[tuple[str, str], Collection[str]] = {("edge", "type"): LINKS, ("node", "kind"): _KINDS}
"""(what, key) -> our words for it; other tools have a key of that name with words of theirs."""

_OWN: Mapping[str, frozenset[str]] = {
    "node": frozenset((*NodeBlock.known.names, *HostBlock.known.names)),
    "edge": frozenset(LINK_KEYS),
}
_NAMED, _LISTED = 5, 20
"""Limits on the nodes and the attributes that a log line names."""

MOST_NODES = 100_000
"""Limit on the nodes and on the links that a file of another tool may name in short, as in node[0001-9999]."""


class GraphDocument(dict[str, Any]):
    """A document that was made from a graph: its errors cannot refer to lines of a file."""


@dataclass
class ForeignCluster:
    """A cluster as keys of a topology.

    *notes* say what was read as what, *warnings* what was ignored or changed. *origins* maps the
    name of a node, or the index of a link, to the source of its numbers.
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: list[dict[str, Any]] = field(default_factory=list)
    head: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    origins: dict[str | int, str] = field(default_factory=dict)

    def link(self, a: str, b: str, origin: str = "", **keys: Any) -> None:
        """Add a link between *a* and *b* with *keys*; their numbers come from *origin*."""
        if origin:
            self.origins[len(self.links)] = origin
        self.links.append({"between": [a, b], **keys})

    def document(self) -> Made:
        return GraphDocument({**self.head, "nodes": self.nodes, "links": self.links})


def of_graph(
    about: Attributes,
    nodes: Iterable[tuple[str, Attributes]],
    edges: Iterable[tuple[Sequence[str], Attributes]],
    *,
    file: str | None = None,
    add_up: bool = False,
) -> ForeignCluster:
    """Return the cluster of a graph, by attributes with the names of our keys or of FOREIGN.

    With *add_up*, edges between the same nodes become one link with the sum of their bandwidths, and
    edges from a node to itself are left out. Raise UsageError, with *file*, for numbers that no link can have.
    """
    head = {key: about[key] for key in ("name", "description", *NETWORK_KEYS) if about.get(key)}
    found = ForeignCluster(head={key: printable(one) if isinstance(one, str) else one for key, one in head.items()})
    ignored: dict[str, Counter[str]] = {"node": Counter(), "edge": Counter()}
    mapped: Counter[str] = Counter()
    for name, attributes in nodes:
        found.nodes[name] = _kept(_unflatten(attributes), "node", ignored["node"], mapped, [])[0]
    loops = 0
    wrong: list[Problem] = []
    for index, ((a, b), attributes) in enumerate(edges):
        if add_up and a == b:
            loops += 1
            continue
        bad: list[Problem] = []
        keys, origin = _kept(_unflatten(attributes), "edge", ignored["edge"], mapped, bad)
        wrong += [replace(one, key=f"edges[{index}].{one.key}", file=file) for one in bad]
        found.link(a, b, origin, **keys)
    raise_all(once(wrong))
    found.notes += [f"{words} on {_times(count, 'edge')}" for words, count in mapped.items()]
    if add_up:
        _add_up(found)
    words = [_ignored(what, names) for what, names in ignored.items() if names]
    found.warnings += [f"ignored on {'; on '.join(words)}"] if words else []
    found.warnings += [f"left out: {_times(loops, 'edge')} from a node to itself"] if loops else []
    return found


def _ignored(what: str, names: Counter[str]) -> str:
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    listed = ", ".join(printable(f"{name:.40}") for name in list(names)[:_LISTED])
    return f"{_times(max(names.values()), what)}: {listed}{more}"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def once(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first of the *problems* with the same attribute of edges, with the number of the others."""
    kinds: dict[tuple[str, str], list[Problem]] = {}
    for one in problems:
        kinds.setdefault((one.key.partition("]")[2], one.expected), []).append(one)
    return [
        replace(first, found=f"{first.found}, and {len(others)} more like it") if others else first
        for first, *others in kinds.values()
    ]


def _kept(
    attributes: Attributes, what: str, ignored: Counter[str], mapped: Counter[str], wrong: list[Problem]
) -> tuple[dict[str, Any], str]:
    """Return (*attributes* by keys, almost keys or foreign names; the origin of the last).

    Count the others in *ignored*, and in *mapped* what was read as what. Add invalid numbers to *wrong*.
    """
    keys: dict[str, Any] = {}
    origins = []
    for name, value in attributes.items():
        if (what, name) in _WORDS and not _is_word(value, _WORDS[what, name]):
            ignored[f"{name} (not a {name} of ours)"] += 1
        elif _is_key(name, what):
            keys[name] = value
        elif what == "edge" and (meant := _meant(name, value, wrong)) is not None:
            key, quantity = meant
            if key not in attributes and keys.setdefault(key, quantity) is quantity:
                mapped[f"{key} is {name}"] += 1
                origins.append(f"{key}: {name} {value}")
        else:
            unknown = what == "edge" and _is_foreign(name)
            lacks = "no number" if _number(value) is None else "no unit"
            ignored[f"{name} ({lacks})" if unknown else name] += 1
    return keys, ", ".join(origins)


def _meant(name: str, value: Any, wrong: list[Problem]) -> tuple[str, str] | None:
    """Return (key, quantity with a unit) that the foreign attribute *name* means; None if it means none.

    If the quantity is invalid, add a problem to *wrong*.
    """
    if (unit := _WITH_UNIT.fullmatch(name)) is not None:
        prefix = {"K": "k", "m": "M", "g": "G"}.get(unit[1], unit[1])
        rate = f"{prefix}{'B/s' if unit[2] == 'B' else 'bps'}"
        key, scale = ("latency", unit[3].lower()) if unit[3] else ("bandwidth", rate)
    elif name.lower() in FOREIGN:
        key, scale = FOREIGN[name.lower()]
    else:
        return None
    number = _number(value)
    is_text = number is None and isinstance(value, str) and re.search(r"\d", value)
    if not is_text and (number is None or not scale):
        return None
    parse, write = (parse_bandwidth, write_bandwidth) if key == "bandwidth" else (parse_latency, write_latency)
    text = value if is_text else f"{number:.15g} {scale}"
    try:
        quantity = parse(text)
    except UnitError as error:
        wrong.append(Problem(name, error.found, error.expected))
        return None
    return key, text if is_text or extreme(quantity) else write(quantity)


def _number(value: Any) -> float | None:
    """Return *value* if it is a number or its text, else None."""
    try:
        return None if isinstance(value, bool) else float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return None


@lru_cache(maxsize=1024)
def _is_key(name: str, what: str) -> bool:
    """Return whether *name* is a key of a node or an edge, or a misspelt one."""
    if name in _OWN[what] or _is_foreign(name):
        return name in _OWN[what]
    return closest(name.lower(), _OWN[what], cutoff=0.8) is not None


def _is_foreign(name: str) -> bool:
    return name.lower() in FOREIGN or _WITH_UNIT.fullmatch(name.lower()) is not None


def _is_word(value: Any, words: Collection[str]) -> bool:
    """Return whether *value* is one of *words*, or a misspelt one."""
    return isinstance(value, str) and closest(value, words, cutoff=0.8) is not None


def _add_up(found: ForeignCluster) -> None:
    """Make one link of edges between the same nodes, unless they have more keys than two quantities."""
    pairs: dict[frozenset[str], list[int]] = {}
    for index, link in enumerate(found.links):
        pairs.setdefault(frozenset(link["between"]), []).append(index)
    gone = set()
    summed = unrated = 0
    for those in (those for those in pairs.values() if len(those) > 1):
        links = [found.links[index] for index in those]
        rated = [index for index in those if "bandwidth" in found.links[index]]
        rates = [found.links[index]["bandwidth"] for index in rated]
        times = [link["latency"] for link in links if "latency" in link]
        try:
            sum_Bps, latency = sum(map(parse_bandwidth, rates)), max(times, key=parse_latency, default=None)
        except UnitError:
            continue  # the reader reports it
        if any(link.keys() - {"between", "bandwidth", "latency"} for link in links):
            continue
        if rated:
            links[0]["bandwidth"] = write_bandwidth(sum_Bps)
            found.origins[those[0]] = found.origins.get(rated[0], "")
        if latency is not None:
            links[0]["latency"] = latency
        if len(rated) > 1:
            found.origins[those[0]] = f"sum of {len(rated)} of {len(those)} edges: {' + '.join(rates[:_NAMED])}"
            summed += 1
        unrated += min(len(those) - len(rated), len(those) - 1)
        gone.update(those[1:])
    if unrated:
        found.warnings.append(
            f"left out: {_times(unrated, 'edge')} without a bandwidth where others join the same nodes"
        )
    if gone:
        kept = [index for index in range(len(found.links)) if index not in gone]
        found.origins = {new: found.origins[old] for new, old in enumerate(kept) if old in found.origins}
        found.links = [found.links[index] for index in kept]
    if summed:
        pairs_of = f"{summed} {'pair' if summed == 1 else 'pairs'} of nodes"
        found.notes.append(f"edges between the same nodes are one link, their bandwidths added ({pairs_of})")


def _unflatten(attributes: Attributes) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, value in attributes.items():
        _put(plain, str(key), value)
    # networkx adds the edge's number in a multigraph, and GraphML the edge's id, as attributes.
    return {key: value for key, value in plain.items() if key not in ("id", "key")}


def _put(place: dict[str, Any], key: str, value: Any) -> None:
    """Put *value* at the dotted path *key*; if another value blocks the path, keep the dots."""
    outer, _, inner = key.partition(".")
    if inner and isinstance(place.setdefault(outer, {}), dict):
        _put(place[outer], inner, value)
    else:
        place[key] = value


def printable(text: str) -> str:
    """Return *text* on one line, without characters that a terminal or a comment would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def renamed(nodes: Iterable[Any]) -> list[str]:
    """Return a warning that names those of *nodes* that had to be renamed, if any."""
    changed = [
        f"{node!r:.40} is {node_name(node):.40}" for node in nodes if isinstance(node, str) and node_name(node) != node
    ]
    more = f", and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    return [f"names of nodes have letters, digits, _ and -: {', '.join(changed[:_NAMED])}{more}"] if changed else []


def distinct_names(labels: Mapping[Any, str]) -> dict[Any, str]:
    """Return id -> name for id -> label: a label that no name can have, or that several have, gets the id."""
    plain = {key: node_name(label)[:64] for key, label in labels.items()}
    times = Counter(plain.values())
    names: dict[Any, str] = {}
    number = len(labels)
    taken = {name for name, count in times.items() if count == 1}
    for key, name in plain.items():
        if times[name] > 1 or not NODE_NAME.fullmatch(name):
            base = name[:40] if NODE_NAME.fullmatch(name) else "node"
            name = f"{base}_{node_name(key)[:12]}"
            while name in taken or not NODE_NAME.fullmatch(name):
                number += 1
                name = f"{base}_{number}"
            taken.add(name)
        names[key] = name
    return names


def directed(file: str | None) -> list[Problem]:
    expected = "an undirected one: a link carries both ways (duplex: full, half or free)"
    return [Problem("graph", "a directed graph", expected, file)]


def twice(nodes: Iterable[Any], file: str | None) -> list[Problem]:
    """Return a problem for each of *nodes* with the same name as an earlier one."""
    first: dict[str, Any] = {}
    problems = []
    for index, node in enumerate(nodes):
        name = node_name(node)
        if name in first:
            both = "" if node == first[name] else f": {first[name]!r} and {node!r}"
            problems.append(Problem(f"nodes[{index}]", f"a second node called {name}{both}", "one", file))
        first.setdefault(name, node)
    return problems
