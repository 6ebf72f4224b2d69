"""Choose among several links between the same two nodes, by the `parallel` of a topology."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias, get_args

from simcluster.spelling import nearest
from simcluster.topology.model.link import Link, link_names
from simcluster.topology.model.routing import packet_length

ParallelRule = Literal["shortest", "address", "size", "stripe"]
Parallel: TypeAlias = ParallelRule | tuple[str, ...]
"""A rule, or names of links in order of preference."""

RULES: dict[ParallelRule, str] = {
    "shortest": "the one on which a 1500-byte packet arrives first",
    "address": "the one with the subnet of the address that peers connect to",
    "size": "the one with the smaller latency + bytes / bandwidth",
    "stripe": "all of them, each a part in proportion to its bandwidth",
}
assert tuple(RULES) == get_args(ParallelRule)

MOST_PARALLEL = 64
"""Limit on the links between the same two nodes."""


class LinkChoice(NamedTuple):
    """The links that a message of at most *most_bytes* takes, each with its share of the bytes."""

    most_bytes: float
    parts: tuple[tuple[Link, float], ...]


def choices(links: Sequence[Link], rule: Parallel, address: str | None) -> tuple[LinkChoice, ...]:
    """Return the choices among *links*, which join the same two nodes, in ascending order of size.

    There are several only if *rule* is size. *address* is that of the node that the other connects to.
    """
    if rule == "size":
        return _by_size(links)
    if rule == "stripe":
        total_Bps = math.fsum(link.bandwidth_Bps for link in links)
        return (LinkChoice(math.inf, tuple((link, link.bandwidth_Bps / total_Bps) for link in links)),)
    wanted = addressed(links, address) if rule == "address" else None
    if not isinstance(rule, str):
        wanted = next((link for name in rule for link in links if name in link.names), None)
    return (LinkChoice(math.inf, ((wanted or _shortest(links), 1.0),)),)


def addressed(links: Iterable[Link], address: str | None) -> Link | None:
    """Return the first of *links* with a subnet that contains *address*; None for a host's name."""
    try:
        ip = ipaddress.ip_address(address or "")
    except ValueError:
        return None
    return next((link for link in links if link.subnet and ip in ipaddress.ip_network(link.subnet)), None)


def _shortest(links: Sequence[Link]) -> Link:
    return min(links, key=lambda link: packet_length(link.latency_s, link.bandwidth_Bps))


def _by_size(links: Sequence[Link]) -> tuple[LinkChoice, ...]:
    """Return the links with the smallest latency + bytes / bandwidth; at a tie the lower latency wins."""
    here = min(links, key=lambda link: (link.latency_s, -link.bandwidth_Bps))
    found: list[LinkChoice] = []
    while faster := [link for link in links if link.bandwidth_Bps > here.bandwidth_Bps]:
        following = min(faster, key=lambda link: (_break_even(here, link), -link.bandwidth_Bps))
        most_bytes = math.floor(_break_even(here, following))
        if not found or most_bytes > found[-1].most_bytes:
            found.append(LinkChoice(most_bytes, ((here, 1.0),)))
        here = following
    return (*found, LinkChoice(math.inf, ((here, 1.0),)))


def _break_even(near: Link, fast: Link) -> Fraction:
    """Return the bytes that take equally long over both links."""
    near_Bps, fast_Bps = Fraction(near.bandwidth_Bps), Fraction(fast.bandwidth_Bps)
    later_s = Fraction(fast.latency_s) - Fraction(near.latency_s)
    return later_s * near_Bps * fast_Bps / (fast_Bps - near_Bps)


def numbers_of(ends: Iterable[tuple[str, str] | None]) -> list[int]:
    """Return the number of each link among those with the same two *ends*: 1, 2, ...; 0 for an only one."""
    pairs = [frozenset(pair or ()) for pair in ends]
    counts: dict[frozenset[str], int] = {}
    numbers = []
    for pair in pairs:
        counts[pair] = counts.get(pair, 0) + 1
        numbers.append(counts[pair])
    return [0 if counts[pair] == 1 else number for pair, number in zip(pairs, numbers, strict=True)]


class LinkNames:
    """The names of links with these *ends*, in either order; None for a link that cannot be read."""

    def __init__(self, ends: Sequence[tuple[str, str] | None]) -> None:
        self._names: list[str] = []
        self._indices: dict[str, dict[int, None]] = {}
        for index, (pair, number) in enumerate(zip(ends, numbers_of(ends), strict=True)):
            self._names.append(link_names(*pair, number)[0] if pair else "")
            for name in (*link_names(*pair, number), *link_names(*pair, 0)) if pair else ():
                self._indices.setdefault(name, {})[index] = None

    def index(self, name: object) -> int | None:
        """Return the index of the link *name*; None if none is called so, or several."""
        found = [*self._indices.get(str(name), ())]
        return found[0] if len(found) == 1 else None

    def expected(self, name: object) -> str:
        """Return the words that correct *name*, which has no `index`."""
        several = [self._names[index] for index in self._indices.get(str(name), ())]
        if several:
            return f"one of {' and '.join(several)}: several links join these nodes"
        return nearest(str(name), filter(None, self._names))
