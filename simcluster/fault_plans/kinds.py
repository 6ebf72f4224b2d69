"""The faults of a run as plain values: a target, an effect, and spells in virtual or real time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from simcluster.errors import ABSENT

if TYPE_CHECKING:
    from simcluster.topology import Hop, Topology

DEAD_S = 5.0
"""Timeout after which a node that is silent or unreachable counts as dead for the nodes that cannot
reach it.
"""

LIMITS_S = (1e-6, 1e9)
"""Limits on options in seconds. The lower one excludes 0, since no timeout of 0 would ever fire."""

PLAN = "the fault plan"
CRASHED = f"crashed by {PLAN}"
NEVER_JOINED = "never joined"
UNTRAINED = "it came back, and the time was up before it had trained"
BEGAN_AGAIN = "the trained model was lost with its earlier incarnation"
WITHOUT_ITS_MODEL = "it came back without what it had trained"
NOTICE_S = 30.0
"""Time that a node has by default to end its step and leave after it was asked to leave."""

NEAR_S = 1e-9
"""Tolerance for comparing two times: in a run that begins again, times are sums with rounding
errors.
"""


def too_late(reason: str) -> str:
    """Return the reason for the loss of a node that joined or rejoined after the others had ended.

    *reason* says why the node was absent before.
    """
    return "joined too late" if reason == ABSENT else f"{reason}, and came back too late"


def overdue(notice_s: float) -> str:
    """Return the reason for the loss of a node that was asked to leave but was still there
    *notice_s* later.
    """
    return f"killed: told to leave, and not at the end of its step within {notice_s:g} s"


def crashed(author: str) -> str:
    """Return the reason for the loss of a node that *author* crashed."""
    return f"crashed by {author}"


def never_restarted(reason: str) -> str:
    """Return the reason for the loss of a node that a world crashed for *reason*, to restart it, and did not."""
    return f"{reason} with returns=True, and never restarted"


def hung(dead_s: float, author: str = PLAN) -> str:
    """Return the reason for the loss of a node that *author* hung for *dead_s*."""
    return f"silent for {dead_s:g} s: hung by {author}"


_OUT_OF_REACH = "out of reach"
GIVEN_UP = f"{_OUT_OF_REACH}: it has given this node up"
"""The reason for the loss of a peer that no longer receives from this node, after one direction was
cut.
"""


def cut_off(dead_s: float, author: str = PLAN) -> str:
    """Return the reason for the loss of a node that *author* cut off for *dead_s*; the two nodes lose
    each other.
    """
    return f"{_OUT_OF_REACH} for {dead_s:g} s: cut off by {author}"


def is_cut(reason: str) -> bool:
    """Return whether a peer that was lost for *reason* may be alive but unreachable."""
    return reason.startswith(_OUT_OF_REACH)


Spell = tuple[float, float]
"""(start, end) in seconds of the run; the end is infinite if the spell never ends."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that is active during each of *spells*, which do not overlap.

    *spec* is the fault's entry in the plan. With a *step*, the spells count from the end of that
    step at the fault's node, or at rank 0 if the fault has no node.
    """

    spells: tuple[Spell, ...]
    step: int | None = None
    spec: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    @property
    def author(self) -> str:
        """The cause of the fault: the plan or a world."""
        return f"the world {self.spec['world']}" if "world" in self.spec else PLAN

    @property
    def at(self) -> str:
        """The start of the fault as the plan writes it, such as "step 3"."""
        return str(self.spec.get("at")) if self.step is None else f"step {self.step}"

    def is_reached(self, rank: int, step: int) -> bool:
        """Return whether a fault that waits for a step begins when *rank* has ended *step*."""
        return self.step is not None and step >= self.step and rank == (self.rank if isinstance(self, NodeFault) else 0)

    def counted_from(self, time_s: float) -> Self:
        """Return this fault with its spells in seconds of the run, after its step has ended at
        *time_s*.
        """
        spells = tuple((start_s + time_s, end_s + time_s) for start_s, end_s in self.spells)
        return replace(self, step=None, spells=spells)

    @property
    def target(self) -> str:
        """The name of the node or link, or the names of the groups, as the plan writes them."""
        if "groups" in self.spec:
            return " | ".join(", ".join(map(str, group)) for group in self.spec["groups"])
        towards = f" towards {self.spec['towards']}" if "towards" in self.spec else ""
        return f"{self.spec.get('node') or self.spec.get('link', '')}{towards}"


@dataclass(frozen=True, kw_only=True)
class NodeFault(Fault):
    """A fault of the node of *rank*."""

    rank: int


class Crash(NodeFault):
    """A crash: the process dies without notifying its peers."""


class Restart(NodeFault):
    """A restart: the process dies, and a new process starts from the beginning at the end of the
    spell.
    """


class Join(NodeFault):
    """A late join: the node is absent until the end of the spell, and then starts from the
    beginning.
    """


class Leave(NodeFault):
    """A request to leave: the node leaves at the end of its current step, and is killed if it has
    not left by the end of the spell.
    """

    @property
    def notice_s(self) -> float:
        """The time in seconds that the node has for leaving."""
        return self.spells[0][1] - self.spells[0][0]


class Hang(NodeFault):
    """A hang: the node does nothing, while its links stay up."""


@dataclass(frozen=True, kw_only=True)
class Slow(NodeFault):
    """A slow node: its work takes *factor* times as long."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class LinkFault(Fault):
    """A fault of the link named *link*: in both directions, or only *towards* one end of the
    link.
    """

    link: str
    towards: str | None = None

    def hits(self, hop: Hop) -> bool:
        """Return whether *hop* crosses this link in an affected direction."""
        return hop.link.name == self.link and self.towards in (None, hop.target)


class Cut(LinkFault):
    """A cut: no message crosses the link."""


class Flap(Cut):
    """A flap: a repeated cut, with one spell per period."""


class LinkCondition(LinkFault):
    """A condition that slows the messages over a link, but loses none."""


@dataclass(frozen=True, kw_only=True)
class Latency(LinkCondition):
    """Added latency: every message takes *extra_s* longer."""

    extra_s: float


@dataclass(frozen=True, kw_only=True)
class Bandwidth(LinkCondition):
    """Less bandwidth: the link's bandwidth is multiplied by *factor*, which is below 1."""

    factor: float


@dataclass(frozen=True, kw_only=True)
class Loss(LinkCondition):
    """Packet loss: packets are dropped with *probability*. TCP resends them, which takes time."""

    probability: float


@dataclass(frozen=True, kw_only=True)
class Traffic(Fault):
    """Traffic of a world: up to *rate_Bps* from node *source* to node *to*."""

    source: str
    to: str
    rate_Bps: float

    @property
    def target(self) -> str:
        return f"{self.source} to {self.to}"


@dataclass(frozen=True, kw_only=True)
class Partition(Fault):
    """A partition: ranks in different *groups* cannot reach each other."""

    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Reset(Fault):
    """A reset: connections between ranks in different *groups* break at the start of each spell.

    The spells have no length. No message is lost, since the nodes connect again and resend what has
    not arrived.
    """

    groups: tuple[tuple[int, ...], ...]


def may_lose(fault: Fault) -> bool:
    """Return whether *fault* may lead to the loss of a node or of a peer that can no longer be
    reached.
    """
    return not isinstance(fault, (Slow, LinkCondition, Reset, Traffic))


def faults_to_come(
    faults: Sequence[Fault],
    began_s: float,
    happened_s: float | None = None,
    step: int = 0,
    happened: Sequence[Any] = (),
) -> tuple[Fault, ...]:
    """Return those of *faults* that are still to come in a run that begins at *began_s*.

    The spells of the returned faults count from *began_s*. A fault that can remove a node, a link
    or a connection happens once: a spell that began before *began_s*, or by *happened_s* in an
    earlier attempt, is not repeated. A late join has happened when the node has joined. All other
    faults (slow, latency, bandwidth, loss) are conditions, which are in effect whenever the run is
    in one of their spells. A fault at a step is still to come if that step is after *step*, at
    which the run begins; but not if it happens once, and its entry in the plan is in *happened*.
    """
    over_s = began_s if happened_s is None else max(began_s, happened_s + NEAR_S)

    def is_condition(fault: Fault) -> bool:
        return not may_lose(fault) and not isinstance(fault, Reset)

    def is_to_come(fault: Fault, spell: Spell) -> bool:
        if is_condition(fault):
            return spell[1] > began_s
        return spell[1] > over_s if isinstance(fault, Join) else spell[0] >= over_s

    found: list[Fault] = []
    for fault in faults:
        if fault.step is not None:
            if fault.step > step and (is_condition(fault) or fault.spec not in happened):
                found.append(fault)
            continue
        spells = [spell for spell in fault.spells if is_to_come(fault, spell)]
        if spells:
            left = tuple((max(start_s - began_s, 0.0), end_s - began_s) for start_s, end_s in spells)
            found.append(replace(fault, spells=left))
    return tuple(found)


Pairs = Callable[[int, int], bool]
"""(a, b) -> whether messages from rank a to rank b are affected."""


def severed(fault: Cut | Partition | Reset, topology: Topology) -> Pairs:
    """Return a function that says whether *fault* affects messages from one rank to another.

    Routes are fixed, so no message can bypass a link that is cut. The messages of a pair are one
    ordered stream, so a cut stops all of them if any may take the link.
    """
    if isinstance(fault, (Partition, Reset)):
        group_of = {rank: number for number, group in enumerate(fault.groups) for rank in group}
        return lambda a, b: a in group_of and b in group_of and group_of[a] != group_of[b]
    names = topology.workers
    return lambda a, b: any(map(fault.hits, topology.used(names[a], names[b])))


def united(spells: Sequence[Spell]) -> tuple[Spell, ...]:
    """Return *spells* in order of time, with overlapping and adjacent ones merged."""
    found: list[Spell] = []
    for start_s, end_s in sorted(spells):
        if found and start_s <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end_s))
        else:
            found.append((start_s, end_s))
    return tuple(found)
