"""Apply a fault plan, and the faults of worlds, in virtual time.

For faults that the sockets backend supports, both backends have the same `dead_s`, lose the same
nodes, and give the same reasons. See docs/faults.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, count, permutations
from math import inf, prod
from typing import TYPE_CHECKING

from simcluster.fault_plans import kinds
from simcluster.fault_plans.log import FaultLog
from simcluster_backends.sim.membership import Severance
from simcluster_backends.sim.network.losses import together

if TYPE_CHECKING:
    from simcluster.topology import Hop, Link
    from simcluster_backends.sim.cluster import SimCluster
    from simcluster_backends.sim.loop.clock import Alarm
    from simcluster_backends.sim.member import SimMember
    from simcluster_backends.sim.network.fairshare import Demand
    from simcluster_backends.sim.stream import Stream

_ENDS, _DEAD, _BEGINS, _LAST = range(4)
"""The kinds of events. Simultaneous events happen in this order."""


def _between(a: int, b: int) -> kinds.Pairs:
    return lambda sender, receiver: {sender, receiver} == {a, b}


class SimFaults:
    """The faults of one run. A node that is silent or unreachable for more than *dead_s* is lost.

    With *more*, worlds may call `begin` and `end` during the run.
    """

    _cluster: SimCluster
    log: FaultLog

    def __init__(self, plan: Sequence[kinds.Fault] = (), dead_s: float = kinds.DEAD_S, *, more: bool = False) -> None:
        self._plan = dict(enumerate(plan))
        self._dead_s = dead_s
        self._more = more
        self._numbers = count(len(plan))
        self._at_steps = [number for number, fault in enumerate(plan) if fault.step is not None]
        # The keys are numbers of faults in the plan, except where a comment says otherwise.
        self._cuts: dict[int, tuple[kinds.Pairs, list[Stream]]] = {}
        self._resets: list[tuple[kinds.Pairs, list[Stream]]] = []  # pairs that are reconnecting
        self._hung: dict[int, SimMember] = {}
        self._leaving: dict[int, SimMember] = {}
        self._away: dict[int, int] = {}  # rank -> number of the fault that ends when it (re)joins
        self._links: dict[int, kinds.LinkFault] = {}
        self._traffic: dict[int, Demand] = {}
        self._dead: dict[int, Alarm] = {}  # of faults of worlds

    def attach(self, cluster: SimCluster) -> None:
        """Attach to *cluster* before any node begins."""
        self._cluster = cluster
        self.log = FaultLog(cluster.loop.time, sees_bytes=True)
        without_gates = (kinds.Crash, kinds.Slow, kinds.Leave)
        cluster.streams.gated = self._more or not all(isinstance(each, without_gates) for each in self._plan.values())
        cluster.streams.on_stream = self._on_stream
        cluster.streams.on_drop = self._on_drop

    def schedule(self) -> None:
        """Begin faults at time 0, set alarms for later events, and slow devices down.

        Faults that start at a step wait for `on_step`. Call this before any node begins."""
        moments = [moment for number in self._plan for moment in self._moments(number)]
        self._slow_down()
        if self._more or any(isinstance(fault, kinds.LinkCondition) for fault in self._plan.values()):
            self._cluster.routes.link_now = self._link_now
        for time_s, what, number in sorted(moments):
            if time_s:
                self._set_alarm(time_s, what, number)
            else:
                self._act(what, number)  # an alarm at 0 would ring after the nodes have begun

    @property
    def count_steps(self) -> bool:
        """Whether steps must be reported to `on_step`."""
        return bool(self._at_steps)

    def on_step(self, rank: int, step: int) -> None:
        """Schedule the faults planned for the end of *step* on *rank*. Call this at that moment."""
        for number in [number for number in self._at_steps if self._plan[number].is_reached(rank, step)]:
            self._at_steps.remove(number)
            self._plan[number] = self._plan[number].counted_from(self._cluster.loop.time())
            self._slow_down()
            for moment in self._moments(number):
                self._set_alarm(*moment)

    def begin(self, fault: kinds.Fault) -> int:
        """Begin *fault*, whose end is not known yet; return its number for `end`."""
        number = next(self._numbers)
        self._plan[number] = fault
        self._begin(number)
        self._slow_down(fault)
        if isinstance(fault, (kinds.Hang, kinds.Cut)):
            self._dead[number] = self._set_alarm(fault.spells[0][0] + self._dead_s, _LAST, number)
        return number

    def end(self, number: int) -> None:
        """End a fault that `begin` has begun."""
        if number in self._dead:
            self._dead.pop(number).cancelled = True
        fault = self._plan[number]
        self._end(number)
        del self._plan[number]
        self._slow_down(fault)

    def _last(self, number: int) -> None:
        """Let a world end fault *number* at this very instant; a fault that it has not ended loses nodes."""
        self._dead[number] = self._set_alarm(self._cluster.loop.time(), _DEAD, number)

    def _moments(self, number: int) -> Iterator[tuple[float, int, int]]:
        """Yield (time, event, *number*) for each event of fault *number* with a known time."""
        fault = self._plan[number]
        for start_s, end_s in fault.spells if fault.step is None else ():
            yield start_s, _BEGINS, number
            if end_s < inf and not isinstance(fault, kinds.Reset):
                yield end_s, _ENDS, number
            if isinstance(fault, (kinds.Hang, kinds.Cut, kinds.Partition)) and end_s - start_s > self._dead_s:
                yield start_s + self._dead_s, _DEAD, number

    def _act(self, what: int, number: int) -> None:
        (self._end, self._lose, self._begin, self._last)[what](number)

    def _set_alarm(self, time_s: float, what: int, number: int) -> Alarm:
        return self._cluster.loop.clock.alarm_at(time_s, partial(self._act, what), number)

    def on_left(self, node: SimMember) -> None:
        """Log that *node* has left as requested."""
        for number in [number for number, leaving in self._leaving.items() if leaving is node]:
            del self._leaving[number]
            self.log.ends(self._plan[number])

    def _begin(self, number: int) -> None:
        fault = self._plan[number]
        cluster = self._cluster
        if isinstance(fault, kinds.NodeFault) and not cluster.lives(fault.rank):
            return
        self.log.begins(fault)
        match fault:
            case kinds.Crash():
                cluster.crash(fault.rank, kinds.crashed(fault.author), fault)
            case kinds.Restart():
                self._away[fault.rank] = number
                cluster.crash(fault.rank, kinds.crashed(fault.author), fault, returns=True)
            case kinds.Join() if fault.spells[0][1] > 0:
                self._away[fault.rank] = number
                cluster.leave_out(fault.rank, fault)
            case kinds.Leave():
                self._leaving[number] = cluster.members[fault.rank]
                self._leaving[number].recorder.told_to_leave = True
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
            case kinds.Traffic():
                self._traffic[number] = cluster.routes.demand(fault.source, fault.to, fault.rate_Bps)
                cluster.network.join(self._traffic[number])

    def _end(self, number: int) -> None:
        fault = self._plan[number]
        self.log.ends(fault)
        match fault:
            case kinds.Restart() | kinds.Join() if self._away.get(fault.rank) == number:
                del self._away[fault.rank]
                self._cluster.revive(fault.rank)
                self._slow_down()
            case kinds.Leave() if number in self._leaving:
                node = self._leaving.pop(number)
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
            case kinds.Traffic():
                self._cluster.network.leave(self._traffic.pop(number))

    def _lose(self, number: int) -> None:
        """Declare lost the nodes that fault *number* has silenced or cut off for *dead_s*."""
        fault = self._plan[number]
        cluster = self._cluster
        if isinstance(fault, kinds.Hang) and number in self._hung:
            node = self._hung.pop(number)
            if node is cluster.members[fault.rank] and cluster.lives(fault.rank):
                cluster.crash(fault.rank, kinds.hung(self._dead_s, fault.author), fault)
        elif number in self._cuts:
            pairs = self._cuts[number][0]
            reason = kinds.cut_off(self._dead_s, fault.author)
            cluster.membership.severs(Severance(cluster.loop.time(), pairs, reason, fault))
            for node in cluster.living():
                node.look_around()

    def _reset(self, fault: kinds.Reset) -> None:
        """Stop the streams of each affected pair for one round trip, the time to reconnect."""
        cluster = self._cluster
        severed = kinds.severed(fault, cluster.topology)
        names = cluster.topology.workers
        for a, b in combinations(range(len(names)), 2):
            if severed(a, b):
                stopped = [s for s in cluster.streams.used() if {s.sender.rank, s.receiver.rank} == {a, b}]
                reset = (_between(a, b), stopped)
                self._resets.append(reset)
                for stream in stopped:
                    stream.stop()
                now_s = cluster.loop.time()
                ways = (cluster.routes.way(*ends) for ends in permutations((names[a], names[b])))
                there, back = (way.latency_at(now_s) for way in ways)
                cluster.loop.clock.alarm_at(now_s + (there + back), self._connected, reset)

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

    def _slow_down(self, by: kinds.Fault | None = None) -> None:
        """Set the slowdowns and hangs of all devices, or of the one that *by* concerns.

        A restarted node ignores earlier hangs.
        """
        for node in self._cluster.members if by is None else self._slowed(by):
            node.device.change(
                [
                    (spell, fault.factor if isinstance(fault, kinds.Slow) else inf)
                    for fault in self._plan.values()
                    if isinstance(fault, (kinds.Slow, kinds.Hang)) and fault.rank == node.rank and fault.step is None
                    for spell in fault.spells
                    if isinstance(fault, kinds.Slow) or spell[0] >= node.born_s
                ],
                self._cluster.loop.clock,
            )

    def _slowed(self, by: kinds.Fault) -> list[SimMember]:
        return [self._cluster.members[by.rank]] if isinstance(by, (kinds.Slow, kinds.Hang)) else []

    def _change_link(self, fault: kinds.LinkFault) -> None:
        """Apply all current faults to the link of *fault* and to every route over it."""
        cluster = self._cluster
        link = next(link for link in cluster.topology.links if link.name == fault.link)
        for end in (link.a, link.b):
            left = prod(each.factor for each in self._on(link, end) if isinstance(each, kinds.Bandwidth))
            for channel in cluster.routes.channels(link, end):
                cluster.network.limit(channel, left)
        for stream in cluster.streams.used():
            names = stream.sender.name, stream.receiver.name
            if any(map(fault.hits, cluster.topology.used(*names))):
                stream.reroute(cluster.routes.way(*names))

    def _on(self, link: Link, end: str) -> list[kinds.LinkFault]:
        return [each for each in self._links.values() if each.link == link.name and each.towards in (None, end)]

    def _link_now(self, hop: Hop) -> Link:
        """Return the link of *hop* with all current faults in the hop's direction applied."""
        link = hop.link
        faults = self._on(link, hop.target)
        if extras := [fault.extra_s for fault in faults if isinstance(fault, kinds.Latency)]:
            link = replace(link, latency_s=max(0.0, sum(extras, link.latency_s)))
        for fault in faults:
            match fault:
                case kinds.Bandwidth():
                    link = replace(link, bandwidth_Bps=link.bandwidth_Bps * fault.factor)
                case kinds.Loss():
                    link = replace(link, loss=together([link.loss, fault.probability]))
        return link
