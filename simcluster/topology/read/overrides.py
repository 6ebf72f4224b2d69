"""Replace values of a topology document by dotted keys: nodes.pi4.device, links.a-b.bandwidth, network.

The values are checked later, with everything else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from simcluster.documents.yaml import Document, parse_value
from simcluster.documents.yaml_build import KeyPath
from simcluster.errors import Problem, UsageError
from simcluster.spelling import closest, nearest
from simcluster.topology.model.parallel import LinkNames
from simcluster.topology.read.clients import ClientsBlock
from simcluster.topology.read.conditions import BackgroundBlock, JitterBlock, LatencyTraceBlock, RateTraceBlock
from simcluster.topology.read.devices import ACCELERATOR_KEYS, STRAGGLER_KEYS
from simcluster.topology.read.generated import GENERATOR, settings_of_generators
from simcluster.topology.read.links import LINK_KEYS
from simcluster.topology.read.network import NETWORK_KEYS
from simcluster.topology.read.nodes import LAUNCH_KEYS, NODE_KEYS
from simcluster.topology.read.spread import SPREAD_KEYS

ALL = "*"
"""The name in an override that stands for all workers, or for all links."""

BARE = ("switch", "host")
"""The kinds of nodes that compute nothing."""


def apply(document: Document, overrides: Mapping[str, Any]) -> list[Problem]:
    """Put every override into *document*; return the problems of overrides with a wrong key.

    A string is read as in a file: "10" is a number. Later overrides see the changes of earlier
    ones.
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
    """Return the path of *key* in the document.

    A key such as nodes.*.compute or links.*.bandwidth has one path for each worker or link.
    """
    first, *rest = key.split(".")
    if first not in ("nodes", "links"):
        return [_path_of_whole(key, first, rest)]
    if not rest or not rest[0]:
        raise UsageError(f"override {key}", "", f"{first}.NAME.KEY=VALUE")
    name, *keys = rest
    known, parts = LINK_KEYS if first == "links" else NODE_KEYS, document.get((first,))
    if name in known and not keys:
        raise UsageError(f"override {key}", f"{name!r}, no name", f"{first}.{ALL}.{name}, for all of them")
    named: list[str | int] = []
    if first == "links":
        is_all = name == ALL and bool(keys) and isinstance(parts, list)
        named += range(len(parts)) if is_all else [_link_index(document, key, name)]
    elif name == ALL and keys and isinstance(parts, dict):
        named += [node for node, block in parts.items() if not isinstance(block, dict) or block.get("kind") not in BARE]
    elif isinstance(parts, dict) and name in parts:
        named.append(name)
    else:
        raise _unknown(key, name, parts if isinstance(parts, dict) else ())
    _check_keys(key, keys, known)
    return [(first, one, *keys) for one in named]


def _path_of_whole(key: str, first: str, rest: list[str]) -> KeyPath:
    """Return the path of *key*, which belongs to the whole topology.

    Raise UsageError if the key is unknown.
    """
    whole = ("name", "description", *NETWORK_KEYS)
    if first in whole and not rest:
        return (first,)
    if first == "launch":
        _check_keys(key, rest, LAUNCH_KEYS)
        return (first, *rest)
    if first == "clients" and len(rest) == 1:
        _check_keys(key, rest, ClientsBlock.known.names)
        return (first, *rest)
    known, made = (*whole, "launch", "clients", "nodes", "links"), (GENERATOR, *settings_of_generators())
    if (meant := closest(first, (*made, *known))) not in made:
        raise _unknown(key, first, known)
    expected = f"a topology from one, such as {{{GENERATOR}: star, workers: 8}}: this one lists its nodes and links"
    if first in LINK_KEYS:
        expected = f"links.{ALL}.{first}, for all links"
    found = f"{first!r}, {'' if first == meant else f'similar to {meant!r}, '}a setting of generators"
    raise UsageError(f"override {key}", found, expected)


_INNER: dict[str, tuple[str, ...] | None] = {
    "straggler": STRAGGLER_KEYS,
    "profile": None,
    "accelerator": ACCELERATOR_KEYS,
    "jitter": JitterBlock.known.names,
    "trace": RateTraceBlock.known.names,
    "latency_trace": LatencyTraceBlock.known.names,
    "background": BackgroundBlock.known.names,
    "spread": SPREAD_KEYS,
}
"""Key of a node or link that is a mapping -> the keys of that mapping; None if any are allowed."""


def _check_keys(key: str, keys: list[str], known: tuple[str, ...]) -> None:
    """Raise UsageError unless *keys* is the path of a value in a mapping with the keys *known*.

    *keys* may be empty, one known key, or the key of an inner mapping and a key in that mapping.
    """
    if keys and keys[0] not in known:
        raise _unknown(key, keys[0], known)
    if len(keys) > 1 and (keys[0] not in _INNER or len(keys) > 2):
        raise UsageError(f"override {key}", "", f"no further key after {keys[0]}")
    inner = _INNER.get(keys[0]) if keys else None
    if len(keys) == 2 and inner is not None and keys[1] not in inner:
        raise _unknown(key, keys[1], inner)


def _link_index(document: Document, key: str, name: str) -> int:
    """Return the index of the link *name*, which consists of both ends in either order.

    Raise UsageError if there is none.
    """
    links = document.get(("links",))
    between = (
        [one.get("between") if isinstance(one, dict) else None for one in links] if isinstance(links, list) else []
    )
    pairs = [(str(two[0]), str(two[1])) if isinstance(two, list) and len(two) == 2 else None for two in between]
    names = LinkNames(pairs)
    if (index := names.index(name)) is None:
        raise UsageError(f"override {key}", f"unknown key {name!r}", names.expected(name))
    return index


def _unknown(key: str, word: str, known: Iterable[str]) -> UsageError:
    return UsageError(f"override {key}", f"unknown key {word!r}", nearest(word, known))
