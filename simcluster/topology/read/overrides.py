"""Replace values of a topology document by dotted keys: nodes.pi4.device, links.a-b.bandwidth, network.

The values are checked later, with everything else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from simcluster.documents.yaml import Document, parse_value
from simcluster.documents.yaml_build import KeyPath
from simcluster.errors import Problem, UsageError, closest, nearest
from simcluster.topology.read.conditions import BackgroundBlock, JitterBlock, RateTraceBlock
from simcluster.topology.read.devices import ACCELERATOR_KEYS, STRAGGLER_KEYS
from simcluster.topology.read.generated import GENERATOR, settings_of_generators
from simcluster.topology.read.links import LINK_KEYS
from simcluster.topology.read.network import NETWORK_KEYS
from simcluster.topology.read.nodes import LAUNCH_KEYS, NODE_KEYS
from simcluster.topology.read.spread import SPREAD_KEYS

ALL = "*"
"""In place of a node's name: every worker; in place of a link's: every link."""

BARE = ("switch", "host")
"""Kinds of nodes that compute nothing."""


def apply(document: Document, overrides: Mapping[str, Any]) -> list[Problem]:
    """Put every override into *document*; return the problems of those that fit nowhere.

    Text means what it would mean in a file: "10" is a number. Later overrides see the changes of earlier ones.
    """
    problems: list[Problem] = []
    for key, value in overrides.items():
        try:
            paths = _paths(document, key)
            value = parse_value(value) if isinstance(value, str) else value
            for path in paths:
                document.override(path, copy.deepcopy(value), f"override {key}")
        except UsageError as error:
            problems += error.problems
    return problems


def _paths(document: Document, key: str) -> list[KeyPath]:
    """Return the place of *key*, or those that it has at all workers or links: nodes.*.compute, links.*.bandwidth."""
    parts, nodes, links = key.split("."), document.get(("nodes",)), document.get(("links",))
    if parts[:2] == ["links", ALL] and len(parts) > 2 and isinstance(links, list):
        _check_keys(key, parts[2:], LINK_KEYS)
        return [("links", index, *parts[2:]) for index in range(len(links))]
    if parts[:2] != ["nodes", ALL] or len(parts) < 3 or not isinstance(nodes, dict):
        return [_path(document, key)]
    _check_keys(key, parts[2:], NODE_KEYS)
    workers = [name for name, block in nodes.items() if not (isinstance(block, dict) and block.get("kind") in BARE)]
    return [("nodes", name, *parts[2:]) for name in workers]


def _path(document: Document, key: str) -> KeyPath:
    first, *rest = key.split(".")
    whole = ("name", "description", *NETWORK_KEYS)
    if first in whole and not rest:
        return (first,)
    if first == "launch":
        _check_keys(key, rest, LAUNCH_KEYS)
        return (first, *rest)
    if first not in ("nodes", "links"):
        known, made = (*whole, "launch", "nodes", "links"), (GENERATOR, *settings_of_generators())
        if (meant := closest(first, (*made, *known))) in made:
            example = f"{{{GENERATOR}: star, workers: 8}}"
            expected = f"a topology from one, such as {example}: this one lists its nodes and links"
            if first in LINK_KEYS:
                expected = f"links.{ALL}.{first}, for all links"
            found = f"{first!r}, {'' if first == meant else f'similar to {meant!r}, '}a setting of generators"
            raise UsageError(Problem(f"override {key}", found, expected))
        raise _unknown(key, first, known)
    if not rest or not rest[0]:
        raise UsageError(Problem(f"override {key}", "", f"{first}.NAME.KEY=VALUE"))
    name, *keys = rest
    if name in (LINK_KEYS if first == "links" else NODE_KEYS) and not keys:
        raise UsageError(Problem(f"override {key}", f"{name!r}, no name", f"{first}.{ALL}.{name}, for all of them"))
    if first == "links":
        index = _link_index(document, key, name)
        _check_keys(key, keys, LINK_KEYS)
        return (first, index, *keys)
    nodes = document.get(("nodes",))
    if not isinstance(nodes, dict) or name not in nodes:
        raise _unknown(key, name, nodes if isinstance(nodes, dict) else ())
    _check_keys(key, keys, NODE_KEYS)
    return (first, name, *keys)


_INNER: dict[str, tuple[str, ...] | None] = {
    "straggler": STRAGGLER_KEYS,
    "profile": None,
    "accelerator": ACCELERATOR_KEYS,
    "jitter": JitterBlock.known.names,
    "trace": RateTraceBlock.known.names,
    "background": BackgroundBlock.known.names,
    "spread": SPREAD_KEYS,
}
"""Keys of a node or link that hold further keys; None for any."""


def _check_keys(key: str, keys: list[str], known: tuple[str, ...]) -> None:
    """Require *keys* to be empty, one of *known*, or one of its mappings followed by one of that mapping's keys."""
    if keys and keys[0] not in known:
        raise _unknown(key, keys[0], known)
    if len(keys) > 1 and (keys[0] not in _INNER or len(keys) > 2):
        raise UsageError(Problem(f"override {key}", "", f"no further key after {keys[0]}"))
    inner = _INNER.get(keys[0]) if keys else None
    if len(keys) == 2 and inner is not None and keys[1] not in inner:
        raise _unknown(key, keys[1], inner)


def _link_index(document: Document, key: str, name: str) -> int:
    """Return the index of the link called *name*: both ends, in either order."""
    links = document.get(("links",))
    names: list[str] = []
    for index, link in enumerate(links if isinstance(links, list) else ()):
        ends = link.get("between") if isinstance(link, dict) else None
        if isinstance(ends, list) and len(ends) == 2:
            if name in (f"{ends[0]}-{ends[1]}", f"{ends[1]}-{ends[0]}"):
                return index
            names.append(f"{ends[0]}-{ends[1]}")
    raise _unknown(key, name, names)


def _unknown(key: str, word: str, known: Iterable[str]) -> UsageError:
    return UsageError(Problem(f"override {key}", f"unknown key {word!r}", nearest(word, known)))
