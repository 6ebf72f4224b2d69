"""The faults that a run may have, as plain values: what is hit, how, and from when to when.

The same spells hold on both backends, in virtual seconds or in measured ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from simcluster.errors import ABSENT

if TYPE_CHECKING:
    from simcluster.topology import Hop, Topology

DEAD_S = 5.0
"""A node that has not been heard of for so long is dead, and so is one that cannot be reached, to whoever cannot."""

LIMITS_S = (1e-6, 1e9)
"""Limits of options in seconds. A node that is dead after no time is never lost, since no spell is shorter."""

CRASHED = "crashed by the fault plan"
NEVER_JOINED = "never joined"
UNTRAINED = "it came back, and the time was up before it had trained"
NOTICE_S = 30.0
"""How long a node that is told to leave may take to come to the end of its step."""


def too_late(reason: str) -> str:
    """Why a node is lost that came, or came back, when the others had ended; it was not there before for *reason*."""
    return "joined too late" if reason == ABSENT else f"{reason}, and came back too late"


def overdue(notice_s: float) -> str:
    """Why a node is lost that was told to leave, and did not within *notice_s*."""
    return f"killed: told to leave, and not at the end of its step within {notice_s:g} s"


def hung(dead_s: float) -> str:
    """Why a node is lost that hung for as long as *dead_s*."""
    return f"silent for {dead_s:g} s: hung by the fault plan"


_OUT_OF_REACH = "out of reach"
GIVEN_UP = f"{_OUT_OF_REACH}: it has given this node up"
"""Why a node loses a peer that hears nothing from it, after a cut of one direction."""


def cut_off(dead_s: float) -> str:
    """Why two nodes lose each other after a cut of *dead_s*."""
    return f"{_OUT_OF_REACH} for {dead_s:g} s: cut off by the fault plan"


def is_cut(reason: str) -> bool:
    """Whether a peer that was lost for *reason* may live on, out of reach."""
    return reason.startswith(_OUT_OF_REACH)


Spell: TypeAlias = tuple[float, float]
"""(from, to) in seconds after the start of the run; to is infinite for what never ends."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that holds during each of *spells*, which follow each other. *spec* is the plan's own words for it."""

    spells: tuple[Spell, ...]
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    @property
    def target(self) -> str:
        """What is hit, in the plan's own words."""
        if "groups" in self.spec:
            return " | ".join(", ".join(map(str, group)) for group in self.spec["groups"])
        towards = f" towards {self.spec['towards']}" if "towards" in self.spec else ""
        return f"{self.spec.get('node') or self.spec.get('link', '')}{towards}"


@dataclass(frozen=True, kw_only=True)
class NodeFault(Fault):
    """A fault of the node of *rank*."""

    rank: int


@dataclass(frozen=True, kw_only=True)
class Crash(NodeFault):
    """Its process dies without a goodbye."""


@dataclass(frozen=True, kw_only=True)
class Restart(NodeFault):
    """Its process dies, and at the end of the spell another one takes its place and begins from the beginning."""


@dataclass(frozen=True, kw_only=True)
class Join(NodeFault):
    """It is not there during the spell, from the start of the run on, and begins from the beginning at its end."""


@dataclass(frozen=True, kw_only=True)
class Leave(NodeFault):
    """It is told to leave, and does so at the end of its step; if that is not within the spell, it is killed."""

    @property
    def notice_s(self) -> float:
        """How long it may take."""
        return self.spells[0][1] - self.spells[0][0]


@dataclass(frozen=True, kw_only=True)
class Hang(NodeFault):
    """It does nothing at all, while its links stay up."""


@dataclass(frozen=True, kw_only=True)
class Slow(NodeFault):
    """Its work takes *factor* times as long."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class LinkFault(Fault):
    """A fault of the *link* of this name: of both directions, or of that *towards* one of its ends alone."""

    link: str
    towards: str | None = None

    def hits(self, hop: Hop) -> bool:
        """Whether *hop* crosses this link in a direction that the fault is in."""
        return hop.link.name == self.link and self.towards in (None, hop.target)


@dataclass(frozen=True, kw_only=True)
class Cut(LinkFault):
    """Nothing gets through."""


@dataclass(frozen=True, kw_only=True)
class Flap(Cut):
    """A cut again and again: as many spells."""


@dataclass(frozen=True, kw_only=True)
class Latency(LinkFault):
    """Every message takes *extra_s* longer."""

    extra_s: float


@dataclass(frozen=True, kw_only=True)
class Bandwidth(LinkFault):
    """The link carries *factor* of what it did."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Loss(LinkFault):
    """This share of packets is lost, which TCP makes good at the cost of time."""

    probability: float


@dataclass(frozen=True, kw_only=True)
class Partition(Fault):
    """Nodes of different *groups*, of ranks, cannot reach each other."""

    groups: tuple[tuple[int, ...], ...]


def may_lose(fault: Fault) -> bool:
    """Whether *fault* may take a node, or a way between two, away from those who wait for it."""
    return not isinstance(fault, (Slow, Latency, Bandwidth, Loss))


Pairs: TypeAlias = Callable[[int, int], bool]
"""Whether what rank *a* sends to rank *b* is concerned."""


def severed(fault: Cut | Partition, topology: Topology) -> Pairs:
    """Which ways *fault* cuts. Routes are fixed: there is no other way round a link that is cut."""
    if isinstance(fault, Partition):
        group_of = {rank: number for number, group in enumerate(fault.groups) for rank in group}
        return lambda a, b: a in group_of and b in group_of and group_of[a] != group_of[b]
    names = topology.workers
    return lambda a, b: any(fault.hits(hop) for hop in topology.route(names[a], names[b]))


def united(spells: Sequence[Spell]) -> tuple[Spell, ...]:
    """*spells* in order, those that overlap or touch as one."""
    found: list[Spell] = []
    for start_s, end_s in sorted(spells):
        if found and start_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((start_s, end_s))
    return tuple(found)


Factors: TypeAlias = Sequence[tuple[Spell, float]]
"""Each factor holds during its spell; those that hold at once multiply. An infinite one lets nothing be done."""


def stretched(factors: Factors, from_s: float, work_s: float) -> float:
    """How long work takes that starts at *from_s* and would take *work_s*: for ever, if it never ends."""
    if not factors:
        return work_s
    at_s, left_s = from_s, work_s
    while True:
        factor, change_s = _factor_at(factors, at_s)
        if left_s * factor <= change_s - at_s:
            return (at_s - from_s) + left_s * factor
        if change_s == inf:
            return inf
        left_s -= (change_s - at_s) / factor
        at_s = change_s


def _factor_at(factors: Factors, time_s: float) -> tuple[float, float]:
    """(the product of what holds at *time_s*, when that changes next)."""
    product, change_s = 1.0, inf
    for (start_s, end_s), factor in factors:
        if start_s <= time_s < end_s:
            product *= factor
            change_s = min(change_s, end_s)
        elif start_s > time_s:
            change_s = min(change_s, start_s)
    return product, change_s
