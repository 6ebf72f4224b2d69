"""A link between two nodes, and a hop over it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from simcluster.topology.model.conditions import Background, Jitter, LatencyTrace, RateTrace
from simcluster.topology.model.spread import NONE, Spread
from simcluster.units import format_bandwidth, format_latency

Duplex = Literal["full", "half", "free"]


def link_names(a: str, b: str, number: int) -> tuple[str, str]:
    """Return the name of a link and the same with its ends swapped."""
    suffix = f"#{number}" if number else ""
    return f"{a}-{b}{suffix}", f"{b}-{a}{suffix}"


class LinkNumbers:
    """The numbers of a link, which `str` returns in words: "1 Gbps, 150 us, full"."""

    __slots__ = ()
    bandwidth_Bps: float
    latency_s: float
    duplex: Duplex

    @property
    def numbers(self) -> tuple[str, str, str]:
        return format_bandwidth(self.bandwidth_Bps), format_latency(self.latency_s), self.duplex

    def __str__(self) -> str:
        return ", ".join(self.numbers)


@dataclass(frozen=True, slots=True)
class Link(LinkNumbers):
    """A link between nodes *a* and *b*, in the order of the file; *latency_s* is one way.

    - *duplex*: full gives *bandwidth_Bps* to each direction, half shares it between both
      directions, free gives all of it to every flow.
    - *ack_share*: the fraction of a flow's rate that its acknowledgements take in the reverse
      direction.
    - *loss*: the fraction of packets that are dropped, in each direction.
    - *medium*: links on one medium share its air time, each at its own bandwidth.
    - *subnet*: the addresses that it carries, as "10.0.0.0/24".
    - *number*: 1, 2, ... among several links between the same two nodes; 0 for an only one.
    """

    a: str
    b: str
    bandwidth_Bps: float
    latency_s: float
    duplex: Duplex = "full"
    type: str | None = None
    source: str = ""
    ack_share: float = 0.0
    jitter: Jitter | None = None
    loss: float = 0.0
    trace: RateTrace | None = None
    background: Background | None = None
    medium: str | None = None
    spread: Spread = NONE
    subnet: str | None = None
    number: int = 0
    latency_trace: LatencyTrace | None = None

    @property
    def name(self) -> str:
        return f"{self.a}-{self.b}#{self.number}" if self.number else f"{self.a}-{self.b}"

    @property
    def names(self) -> tuple[str, str]:
        """The name, and the same with its ends swapped."""
        return link_names(self.a, self.b, self.number)

    @property
    def conditions(self) -> list[str]:
        """The conditions that make the link worse than its numbers, in words."""
        words = [f"on the medium {self.medium}"] if self.medium else []
        words += [f"acknowledgements take {self.ack_share:.2g} of the way back"] if self.ack_share else []
        words += [f"{self.loss:g} of packets lost"] if self.loss else []
        words += [str(part) for part in (self.jitter, self.trace, self.latency_trace) if part is not None]
        return words + ([f"background {self.background}"] if self.background else [])


class Hop(NamedTuple):
    """One link of a route, traversed from a to b if *forward*, else from b to a.

    It carries *share* of the bytes: below 1 if a message is striped over parallel links.
    """

    link: Link
    forward: bool
    share: float = 1.0

    @property
    def source(self) -> str:
        return self.link.a if self.forward else self.link.b

    @property
    def target(self) -> str:
        return self.link.b if self.forward else self.link.a

    @property
    def lane(self) -> tuple[str, bool]:
        """The key of the capacity that flows share.

        It is a direction of the link, the whole link if it is half duplex, or the link's medium.
        """
        if self.link.medium is not None:
            return f"the medium {self.link.medium}", True
        return self.link.name, self.forward or self.link.duplex == "half"


def stages(hops: Sequence[Hop]) -> list[list[Hop]]:
    """Return the hops of a route from node to node: several at once if a message is striped."""
    return [list(parts) for _, parts in itertools.groupby(hops, key=lambda hop: (hop.source, hop.target))]


def merged(hops: Sequence[Hop]) -> list[Link]:
    """Return the links of *hops*, with the links of a striped message as one link."""
    if all(hop.share == 1.0 for hop in hops):
        return [hop.link for hop in hops]
    return [_merged(parts) for parts in stages(hops)]


def _merged(parts: Sequence[Hop]) -> Link:
    return replace(
        max([hop.link for hop in parts], key=lambda link: link.latency_s),
        bandwidth_Bps=min(hop.link.bandwidth_Bps / hop.share for hop in parts),
        loss=math.fsum(hop.link.loss * hop.share for hop in parts),
    )
