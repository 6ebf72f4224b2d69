"""The faults of a run as plain values: the target, the effect, and the spells of virtual or real time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from simcluster.errors import ABSENT

if TYPE_CHECKING:
    from simcluster.topology import Hop, Topology

DEAD_S = 5.0
"""A node that is silent or unreachable for this long is dead to the nodes that cannot reach it."""

LIMITS_S = (1e-6, 1e9)
"""Limits of options in seconds. With a zero timeout no node would ever be lost, since no spell is shorter."""

CRASHED = "crashed by the fault plan"
NEVER_JOINED = "never joined"
UNTRAINED = "it came back, and the time was up before it had trained"
BEGAN_AGAIN = "the trained model was lost with its earlier incarnation"
WITHOUT_ITS_MODEL = "it came back without what it had trained"
NOTICE_S = 30.0
"""Grace period of a node that is asked to leave, to reach the end of its step."""

NEAR_S = 1e-9
"""Times of a run that begins again are sums, so one moment may differ by rounding."""


def too_late(reason: str) -> str:
    """Return why a node is lost that joined or rejoined after the others had ended; it was absent for *reason*."""
    return "joined too late" if reason == ABSENT else f"{reason}, and came back too late"


def overdue(notice_s: float) -> str:
    """Return the reason for the loss of a node that was asked to leave, but did not within *notice_s*."""
    return f"killed: told to leave, and not at the end of its step within {notice_s:g} s"


def hung(dead_s: float) -> str:
    """Return the reason for the loss of a node that hung for *dead_s*."""
    return f"silent for {dead_s:g} s: hung by the fault plan"


_OUT_OF_REACH = "out of reach"
GIVEN_UP = f"{_OUT_OF_REACH}: it has given this node up"
"""The reason for the loss of a peer that no longer hears this node, after a cut of one direction."""


def cut_off(dead_s: float) -> str:
    """Return the reason for which two nodes lose each other after a cut of *dead_s*."""
    return f"{_OUT_OF_REACH} for {dead_s:g} s: cut off by the fault plan"


def is_cut(reason: str) -> bool:
    """Whether a peer lost for *reason* may still be alive, but unreachable."""
    return reason.startswith(_OUT_OF_REACH)


Spell: TypeAlias = tuple[float, float]
"""(from, to) in seconds after the start of the run; to is infinite if it never ends."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that holds during each of *spells*, which do not overlap. *spec* is its text in the plan.

    If it has a *step*, the spells count from the end of that step of its node, or of rank 0 if it is not of a node.
    """

    spells: tuple[Spell, ...]
    step: int | None = None
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    @property
    def at(self) -> str:
        """When it begins, in the plan's words."""
        return str(self.spec.get("at")) if self.step is None else f"step {self.step}"

    def is_reached(self, rank: int, step: int) -> bool:
        """Return whether it begins, as *rank* has ended *step*."""
        return self.step is not None and step >= self.step and rank == (self.rank if isinstance(self, NodeFault) else 0)

    def counted_from(self, time_s: float) -> Self:
        """Return the fault of a step that has ended at *time_s*, with its spells in the time of the run."""
        spells = tuple((start_s + time_s, end_s + time_s) for start_s, end_s in self.spells)
        return replace(self, step=None, spells=spells)

    @property
    def target(self) -> str:
        """The target, in the plan's words."""
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
    """The process dies without a goodbye."""


@dataclass(frozen=True, kw_only=True)
class Restart(NodeFault):
    """The process dies, and at the end of the spell a new one replaces it and starts from the beginning."""


@dataclass(frozen=True, kw_only=True)
class Join(NodeFault):
    """The node is absent from the start of the run to the end of the spell, and then starts from the beginning."""


@dataclass(frozen=True, kw_only=True)
class Leave(NodeFault):
    """The node is asked to leave, and does so at the end of its step; it is killed if that is not within the spell."""

    @property
    def notice_s(self) -> float:
        """The time it has to leave."""
        return self.spells[0][1] - self.spells[0][0]


@dataclass(frozen=True, kw_only=True)
class Hang(NodeFault):
    """The node does nothing, while its links stay up."""


@dataclass(frozen=True, kw_only=True)
class Slow(NodeFault):
    """The node's work takes *factor* times as long."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class LinkFault(Fault):
    """A fault of the *link* of this name: in both directions, or only *towards* one of its ends."""

    link: str
    towards: str | None = None

    def hits(self, hop: Hop) -> bool:
        """Whether *hop* crosses this link in an affected direction."""
        return hop.link.name == self.link and self.towards in (None, hop.target)


@dataclass(frozen=True, kw_only=True)
class Cut(LinkFault):
    """No message passes."""


@dataclass(frozen=True, kw_only=True)
class Flap(Cut):
    """A repeated cut, with one spell per period."""


@dataclass(frozen=True, kw_only=True)
class LinkCondition(LinkFault):
    """The link is worse than usual, and loses no message."""


@dataclass(frozen=True, kw_only=True)
class Latency(LinkCondition):
    """Every message takes *extra_s* longer."""

    extra_s: float


@dataclass(frozen=True, kw_only=True)
class Bandwidth(LinkCondition):
    """The link has *factor* of its bandwidth."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Loss(LinkCondition):
    """This share of packets is dropped; TCP resends them, which takes time."""

    probability: float


@dataclass(frozen=True, kw_only=True)
class Partition(Fault):
    """Nodes of different *groups*, of ranks, cannot reach each other."""

    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Reset(Fault):
    """The connections between nodes of different *groups*, of ranks, break at the start of each spell, which is empty.

    No message is lost: the nodes connect again, and resend what has not arrived.
    """

    groups: tuple[tuple[int, ...], ...]


def may_lose(fault: Fault) -> bool:
    """Whether *fault* may make a node, or the path between two nodes, unavailable to nodes that wait for it."""
    return not isinstance(fault, (Slow, LinkCondition, Reset))


def faults_to_come(
    faults: Sequence[Fault], began_s: float, happened_s: float | None = None, step: int = 0
) -> tuple[Fault, ...]:
    """Return those of *faults* that a run meets which begins at *began_s*, in seconds after that.

    A fault that can take a node, a link or a connection happens once: a spell of it that began before *began_s*, or
    by *happened_s* in an earlier attempt, is not repeated. A late join has happened when the node has come. Other
    faults are conditions (slow, latency, bandwidth, loss), which hold in each of their spells whenever the run is
    there. Of the faults at a step, those after *step* are to come, at which the run begins.
    """
    over_s = began_s if happened_s is None else max(began_s, happened_s + NEAR_S)

    def is_to_come(fault: Fault, spell: Spell) -> bool:
        if not may_lose(fault) and not isinstance(fault, Reset):
            return spell[1] > began_s
        return spell[1] > over_s if isinstance(fault, Join) else spell[0] >= over_s

    found: list[Fault] = []
    for fault in faults:
        if fault.step is not None:
            found += [fault] if fault.step > step else []
            continue
        spells = [spell for spell in fault.spells if is_to_come(fault, spell)]
        if spells:
            left = tuple((max(start_s - began_s, 0.0), end_s - began_s) for start_s, end_s in spells)
            found.append(replace(fault, spells=left))
    return tuple(found)


Pairs: TypeAlias = Callable[[int, int], bool]
"""Whether messages from rank *a* to rank *b* are affected."""


def severed(fault: Cut | Partition | Reset, topology: Topology) -> Pairs:
    """Return the pairs that *fault* cuts off. Routes are fixed: there is no way around a cut link."""
    if isinstance(fault, (Partition, Reset)):
        group_of = {rank: number for number, group in enumerate(fault.groups) for rank in group}
        return lambda a, b: a in group_of and b in group_of and group_of[a] != group_of[b]
    names = topology.workers
    return lambda a, b: any(fault.hits(hop) for hop in topology.route(names[a], names[b]))


def united(spells: Sequence[Spell]) -> tuple[Spell, ...]:
    """Return *spells* in order, with overlapping or adjacent ones merged."""
    found: list[Spell] = []
    for start_s, end_s in sorted(spells):
        if found and start_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((start_s, end_s))
    return tuple(found)


Factors: TypeAlias = Sequence[tuple[Spell, float]]
"""Each factor holds during its spell; simultaneous factors multiply. An infinite one stops all work."""


def stretched(factors: Factors, from_s: float, work_s: float) -> float:
    """Return the duration of work that starts at *from_s* and normally takes *work_s*; inf if it never ends."""
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
    """Return (the product of the factors at *time_s*, the time of its next change)."""
    product, change_s = 1.0, inf
    for (start_s, end_s), factor in factors:
        if start_s <= time_s < end_s:
            product *= factor
            change_s = min(change_s, end_s)
        elif start_s > time_s:
            change_s = min(change_s, start_s)
    return product, change_s
