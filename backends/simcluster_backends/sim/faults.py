"""Apply a fault plan in virtual time.

Whatever sockets has too (`dead_s`, which node loses which, the wording) has the same values there: docs/faults.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, permutations
from math import inf, prod
from typing import TYPE_CHECKING

from simcluster.fault_plans import kinds
from simcluster.fault_plans.log import FaultLog
from simcluster_backends.sim.membership import Severance
from simcluster_backends.sim.network.losses import together

if TYPE_CHECKING:
    from simcluster.topology import Hop, Link
    from simcluster_backends.sim.cluster import SimCluster
    from simcluster_backends.sim.member import SimMember
    from simcluster_backends.sim.stream import Stream

_ENDS, _DEAD, _BEGINS = range(3)
"""Simultaneous events happen in this order."""


def _between(a: int, b: int) -> kinds.Pairs:
    return lambda sender, receiver: {sender, receiver} == {a, b}


class SimFaults:
    """The faults of one run. A node that is silent or unreachable for more than *dead_s* is lost."""

    _cluster: SimCluster
    log: FaultLog

    def __init__(self, plan: Sequence[kinds.Fault] = (), dead_s: float = kinds.DEAD_S) -> None:
        self._plan, self._dead_s = list(plan), dead_s
        self._at_steps = [number for number, fault in enumerate(plan) if fault.step is not None]
        self._cuts: dict[int, tuple[kinds.Pairs, list[Stream]]] = {}  # active ones, by number in the plan
        self._resets: list[tuple[kinds.Pairs, list[Stream]]] = []  # pairs that connect again
        self._hung: dict[int, SimMember] = {}
        self._told: dict[int, SimMember] = {}  # to leave
        self._away: dict[int, int] = {}  # by rank: the number of the fault that ends when it joins or returns
        self._links: dict[int, kinds.LinkFault] = {}

    def attach(self, cluster: SimCluster) -> None:
        """Attach to *cluster* before any node begins."""
        self._cluster = cluster
        self.log = FaultLog(cluster.loop.time, sees_bytes=True)
        without_gates = (kinds.Crash, kinds.Slow, kinds.Leave)
        cluster.streams.gated = not all(isinstance(fault, without_gates) for fault in self._plan)
        cluster.streams.on_stream = self._on_stream
        cluster.streams.on_drop = self._on_drop

    def schedule(self) -> None:
        """Set an alarm for every event and tell the devices; call before any node begins."""
        moments = [moment for number in range(len(self._plan)) for moment in self._moments(number)]
        self._slow_down()
        if any(isinstance(fault, kinds.LinkCondition) for fault in self._plan):
            self._cluster.routes.link_now = self._link_now
        for time_s, what, number in sorted(moments):
            if time_s:
                self._set_alarm(time_s, what, number)
            else:
                self._act(what, number)  # before any node begins

    @property
    def count_steps(self) -> bool:
        """Whether `on_step` is needed."""
        return bool(self._at_steps)

    def on_step(self, rank: int, step: int) -> None:
        """Begin what the plan has at the end of *step* of *rank*, which is now."""
        for number in [number for number in self._at_steps if self._plan[number].is_reached(rank, step)]:
            self._at_steps.remove(number)
            self._plan[number] = self._plan[number].counted_from(self._cluster.loop.time())
            self._slow_down()
            for moment in self._moments(number):
                self._set_alarm(*moment)

    def _moments(self, number: int) -> Iterator[tuple[float, int, int]]:
        """Yield (time, event, *number*) for each event of a fault, if its times are known."""
        fault = self._plan[number]
        for start_s, end_s in fault.spells if fault.step is None else ():
            yield start_s, _BEGINS, number
            if end_s < inf and not isinstance(fault, kinds.Reset):
                yield end_s, _ENDS, number
            if isinstance(fault, (kinds.Hang, kinds.Cut, kinds.Partition)) and end_s - start_s > self._dead_s:
                yield start_s + self._dead_s, _DEAD, number

    def _act(self, what: int, number: int) -> None:
        (self._end, self._lose, self._begin)[what](number)

    def _set_alarm(self, time_s: float, what: int, number: int) -> None:
        self._cluster.loop.clock.alarm_at(time_s, partial(self._act, what), number)

    def on_left(self, node: SimMember) -> None:
        """Log that *node* has left as requested."""
        for number in [number for number, told in self._told.items() if told is node]:
            del self._told[number]
            self.log.ends(self._plan[number])

    def _begin(self, number: int) -> None:
        fault, cluster = self._plan[number], self._cluster
        if isinstance(fault, kinds.NodeFault) and not cluster.lives(fault.rank):
            return
        self.log.begins(fault)
        match fault:
            case kinds.Crash():
                cluster.crash(fault.rank, kinds.CRASHED, fault)
            case kinds.Restart():
                self._away[fault.rank] = number
                cluster.crash(fault.rank, kinds.CRASHED, fault, returns=True)
            case kinds.Join() if fault.spells[0][1] > 0:
                self._away[fault.rank] = number
                cluster.leave_out(fault.rank, fault)
            case kinds.Leave():
                self._told[number] = cluster.members[fault.rank]
                self._told[number].recorder.told_to_leave = True
            case kinds.Hang():
                self._hung[number] = cluster.members[fault.rank]
                self._hung[number].freeze()
            case kinds.Cut() | kinds.Partition():
                pairs = kinds.severed(fault, cluster.topology)
                stopped = [s for s in cluster.streams.used() if pairs(s.sender.rank, s.receiver.rank)]
                self._cuts[number] = (pairs, stopped)
                for stream in stopped:
                    stream.stop()
            case kinds.Reset():
                self.log.ends(fault)
                self._reset(fault)
            case kinds.LinkFault():
                self._links[number] = fault
                self._change_link(fault)

    def _end(self, number: int) -> None:
        fault = self._plan[number]
        self.log.ends(fault)
        match fault:
            case kinds.Restart() | kinds.Join() if self._away.get(fault.rank) == number:
                del self._away[fault.rank]
                self._cluster.revive(fault.rank)
                self._slow_down()
            case kinds.Leave() if number in self._told:
                node = self._told.pop(number)
                if node is self._cluster.members[fault.rank] and self._cluster.lives(fault.rank):
                    self._cluster.crash(fault.rank, kinds.overdue(fault.notice_s), fault)
            case kinds.Hang() if number in self._hung:
                self._hung.pop(number).thaw()
            case kinds.Cut() | kinds.Partition():
                for stream in self._cuts.pop(number)[1]:
                    stream.go_on()
            case kinds.LinkFault():
                del self._links[number]
                self._change_link(fault)

    def _lose(self, number: int) -> None:
        """Declare the nodes lost: the fault has lasted for *dead_s*."""
        fault, cluster = self._plan[number], self._cluster
        if isinstance(fault, kinds.Hang) and number in self._hung:
            node = self._hung.pop(number)
            if node is cluster.members[fault.rank] and cluster.lives(fault.rank):
                cluster.crash(fault.rank, kinds.hung(self._dead_s), fault)
        elif number in self._cuts:
            pairs = self._cuts[number][0]
            cluster.membership.severs(Severance(cluster.loop.time(), pairs, kinds.cut_off(self._dead_s), fault))
            for node in cluster.living():
                node.look_around()

    def _reset(self, fault: kinds.Reset) -> None:
        """Cut each pair of *fault* off for one round trip, in which it connects again."""
        cluster = self._cluster
        severed, names = kinds.severed(fault, cluster.topology), cluster.topology.workers
        for a, b in combinations(range(len(names)), 2):
            if severed(a, b):
                stopped = [s for s in cluster.streams.used() if {s.sender.rank, s.receiver.rank} == {a, b}]
                reset = (_between(a, b), stopped)
                self._resets.append(reset)
                for stream in stopped:
                    stream.stop()
                there, back = (cluster.routes.way(*ends).latency_s for ends in permutations((names[a], names[b])))
                cluster.loop.clock.alarm_at(cluster.loop.time() + (there + back), self._connected, reset)

    def _connected(self, reset: tuple[kinds.Pairs, list[Stream]]) -> None:
        self._resets = [other for other in self._resets if other is not reset]
        for stream in reset[1]:
            stream.go_on()

    def _on_stream(self, stream: Stream) -> None:
        for pairs, stopped in (*self._cuts.values(), *self._resets):
            if pairs(stream.sender.rank, stream.receiver.rank):
                stream.stop()
                stopped.append(stream)

    def _on_drop(self, fault: kinds.Fault | None, size_bytes: int) -> None:
        if fault is not None:
            self.log.drops(fault, size_bytes)

    def _slow_down(self) -> None:
        """Stop devices while their node hangs; a restarted node ignores earlier hangs."""
        for node in self._cluster.members:
            node.device.faults = [
                (spell, fault.factor if isinstance(fault, kinds.Slow) else inf)
                for fault in self._plan
                if isinstance(fault, (kinds.Slow, kinds.Hang)) and fault.rank == node.rank and fault.step is None
                for spell in fault.spells
                if isinstance(fault, kinds.Slow) or spell[0] >= node.born_s
            ]

    def _change_link(self, fault: kinds.LinkFault) -> None:
        """Apply the current state to the link of *fault* and to every route over it."""
        cluster = self._cluster
        link = next(link for link in cluster.topology.links if link.name == fault.link)
        for end in (link.a, link.b):
            left = prod(held.factor for held in self._on(link, end) if isinstance(held, kinds.Bandwidth))
            for channel in cluster.routes.channels(link, end):
                cluster.network.limit(channel, left)
        for stream in cluster.streams.used():
            names = stream.sender.name, stream.receiver.name
            if any(fault.hits(hop) for hop in cluster.topology.route(*names)):
                stream.reroute(cluster.routes.way(*names))

    def _on(self, link: Link, end: str) -> list[kinds.LinkFault]:
        return [held for held in self._links.values() if held.link == link.name and held.towards in (None, end)]

    def _link_now(self, hop: Hop) -> Link:
        """Return the link of *hop* in its current state in that direction."""
        link = hop.link
        for held in self._on(link, hop.target):
            match held:
                case kinds.Latency():
                    link = replace(link, latency_s=link.latency_s + held.extra_s)
                case kinds.Bandwidth():
                    link = replace(link, bandwidth_Bps=link.bandwidth_Bps * held.factor)
                case kinds.Loss():
                    link = replace(link, loss=together([link.loss, held.probability]))
        return link
