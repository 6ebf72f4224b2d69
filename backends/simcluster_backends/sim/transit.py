"""The messages of a stream after their last byte has left: travel, land, drop; and the gate that faults may close."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from simcluster_backends.sim.loop.clock import Alarm

if TYPE_CHECKING:
    from simcluster.fault_plans.kinds import Fault
    from simcluster.payload import Message
    from simcluster.runs.recorder import Recorder
    from simcluster_backends.common.inbox import Inbox
    from simcluster_backends.sim.loop.clock import Clock
    from simcluster_backends.sim.network.routes import Way
    from simcluster_backends.sim.outgoing import SimSend
    from simcluster_backends.sim.rendezvous import Rendezvous


NO_GATE = "where a plan has such a fault, all streams have gates"


class StreamEnd(Protocol):
    """A node as its streams see it. *killed_by* is the fault that ended it, *hung* counts those that now stop it.

    *rendezvous* is None if the node accepts messages without asking.
    """

    rank: int
    name: str
    recorder: Recorder
    inbox: Inbox
    rendezvous: Rendezvous | None
    alive: bool
    killed_by: Fault | None
    hung: int

    def known(self, rank: int) -> int:
        """Return the incarnation of *rank* in use here."""


@dataclass(slots=True, eq=False)
class Gate:
    """The gate of one stream, initially open.

    While it is closed, nothing leaves and nothing lands. A flow keeps its remaining bytes and yields its bandwidth
    share; a message that would land is *held* and lands one latency after the gate opens, like a TCP retransmission.
    Once the gate is *broken*, that fault drops everything in flight.
    """

    closed_by: int = 0  # faults
    held: list[Message] = field(default_factory=list)
    admitted: SimSend | None = None  # by the receiver, while this was closed
    broken: Fault | None = None
    in_flight: dict[int, Message] = field(default_factory=dict)  # by id, in the order of departure
    landed: set[int] = field(default_factory=set)  # ids of those whose latency has passed


@dataclass(slots=True, eq=False)
class Transit:
    """The messages of one stream that have left: each is in flight, has arrived or was dropped.

    *on_drop* is a stream's. *on_end* is called with a message that has arrived or was dropped, if the receiver asks for
    messages or another waits in *queue* to leave.
    """

    clock: Clock
    receiver: StreamEnd
    way: Way
    gate: Gate | None
    queue: deque[SimSend]
    on_drop: Callable[[Fault | None, int], None]
    on_end: Callable[[Message], None]
    under_way_B: int = 0
    arrived_B: int = 0
    dropped_B: int = 0
    _last_arrival_s: float = 0.0
    _on_silence: list[Callable[[], object]] = field(default_factory=list)

    def travel(self, message: Message) -> None:
        """Land *message* after latency and jitter, never ahead of the message before it."""
        self.under_way_B += message.size_bytes
        if self.gate is not None:
            self.gate.in_flight[id(message)] = message
        clock, way = self.clock, self.way
        delay_s = way.latency_s
        for draw_s in way.jitters:
            delay_s += draw_s()
        arrival_s = clock._now + delay_s
        if arrival_s < self._last_arrival_s:
            arrival_s = self._last_arrival_s  # one ordered stream: no overtaking
        self._last_arrival_s = arrival_s
        land = self._arrive if self.gate is None and way.receiver is None else self._land
        if arrival_s > clock._now:
            clock.add_alarm(arrival_s, Alarm(land, message))
        else:
            land(message)

    def _land(self, message: Message) -> None:
        gate = self.gate
        if gate is None:
            self._take_in(message)
        elif gate.broken is not None:
            del gate.in_flight[id(message)]
            gate.landed.discard(id(message))
            self._drop(message, gate.broken)
        elif gate.closed_by:
            gate.held.append(message)
        else:
            gate.landed.add(id(message))
            # In order: later ones wait for an earlier one that was held.
            while gate.in_flight and (first := next(iter(gate.in_flight))) in gate.landed:
                gate.landed.remove(first)
                self._take_in(gate.in_flight.pop(first))

    def _take_in(self, message: Message) -> None:
        overhead = self.way.receiver
        if overhead is None:
            self._arrive(message)
        else:
            overhead.handle(overhead.recv_s, self._arrive, message, wakes=True)

    def _arrive(self, message: Message) -> None:
        if not self.receiver.alive:
            self._drop(message, self.receiver.killed_by)
        else:
            self.under_way_B -= message.size_bytes
            self.arrived_B += message.size_bytes
            self.receiver.inbox.put(message)
            if self.queue or self.receiver.rendezvous is not None:
                self.on_end(message)
        if self._on_silence and not self.under_way_B:
            self._tell_silence()

    def _drop(self, message: Message, fault: Fault | None) -> None:
        self.under_way_B -= message.size_bytes
        self.dropped_B += message.size_bytes
        self.on_drop(fault, message.size_bytes)
        if self.queue or self.receiver.rendezvous is not None:
            self.on_end(message)

    # called by the ends

    def only_wakes_up(self, message: Message, limit_B: int) -> bool:
        """Return whether *message*, which lands, only wakes up the receiver, and changes nothing else.

        It must not make room in an inbox of *limit_B* for another message, nor be unread before another one that comes.
        """
        is_plain = self.gate is None and self.way.receiver is None and self.receiver.rendezvous is None
        if not is_plain or self.queue or self._on_silence or not self.receiver.alive:
            return False
        mailbox = self.receiver.inbox.mailbox
        return mailbox.awaits(message) and mailbox.queued_bytes(message.source) + self.under_way_B < limit_B

    def when_silent(self, then: Callable[[], object]) -> bool:
        """Call *then* once nothing is in flight; return False if that is already so."""
        if not self.under_way_B and not (self.gate is not None and self.gate.closed_by):
            return False
        self._on_silence.append(then)
        return True

    def _tell_silence(self) -> None:
        waiting, self._on_silence = self._on_silence, []
        for then in waiting:
            then()  # it may ask again

    # called by faults

    def go_on(self) -> None:
        """Land what the gate has held, one latency from now."""
        assert self.gate is not None, NO_GATE
        later_s = self.clock._now + self.way.latency_s
        held, self.gate.held = self.gate.held, []
        for message in held:
            self.clock.alarm_at(later_s, self._land, message)
        if self._on_silence and not self.under_way_B:
            self.clock.alarm_at(later_s, lambda _: self._tell_silence())

    def break_for(self, fault: Fault | None) -> None:
        """Drop everything in flight: both ends have given each other up because of *fault*."""
        gate = self.gate
        assert gate is not None, NO_GATE
        gate.broken = gate.broken or fault
        held, gate.held = gate.held, []
        for message in [*held, *(message for number, message in gate.in_flight.items() if number in gate.landed)]:
            self._land(message)
