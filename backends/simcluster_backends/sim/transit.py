"""The messages of a stream after their last byte has left, and the gate that faults may close."""

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


NO_GATE = "if a plan has a fault that closes streams, all streams have gates"


class StreamEnd(Protocol):
    """A node as its streams see it.

    *killed_by* is the fault that ended the node; *hung* counts the faults that stop it now.
    *rendezvous* is None if the node accepts messages without an announcement.
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
        """Return the incarnation of *rank* that this node knows."""


@dataclass(slots=True, eq=False)
class Gate:
    """The gate of one stream, initially open.

    While it is closed, nothing leaves or lands. A flow keeps its remaining bytes and yields its
    bandwidth share. A message that would land is *held* and lands one latency after the gate
    opens, like a TCP retransmission. Once a fault has *broken* the gate, everything in flight is
    dropped.
    """

    closed_by: int = 0  # the number of faults that close it
    held: list[Message] = field(default_factory=list)
    admitted: SimSend | None = None  # admitted by the receiver while the gate was closed
    broken: Fault | None = None
    in_flight: dict[int, Message] = field(default_factory=dict)  # by id, in the order of departure
    landed: set[int] = field(default_factory=set)  # ids of messages that may wait for earlier ones


@dataclass(slots=True, eq=False)
class Transit:
    """The messages of one stream that have left: each is in flight, has arrived or was dropped.

    *on_drop* is that of `Stream`. *on_end* is called with a message that has arrived or was
    dropped, if the receiver has a rendezvous or if another message waits in *queue* to leave.
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

    def travel(self, message: Message, way: Way) -> None:
        """Land *message* after latency and jitter of *way*, never ahead of the message before it."""
        self.under_way_B += message.size_bytes
        if self.gate is not None:
            self.gate.in_flight[id(message)] = message
        clock = self.clock
        delay_s = way.latency_s
        for draw_s in way.jitters:
            delay_s += draw_s()
        for extra_s in way.extras:
            delay_s += extra_s(clock.now_s)
        arrival_s = clock.now_s + delay_s
        if arrival_s < self._last_arrival_s:
            arrival_s = self._last_arrival_s  # one ordered stream: no overtaking
        self._last_arrival_s = arrival_s
        # Without gate and overhead, a message that lands arrives at once: this saves a call.
        land = self._arrive if self.gate is None and way.receiver is None else self._land
        if arrival_s > clock.now_s:
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
            # Land in order of departure: later messages wait for one that the gate has held.
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
        """Return whether the landing of *message* wakes up the receiver and changes nothing else.

        That is so if the receiver awaits it, and if no message waits for room: the bytes unread and
        in flight, this message included, are below *limit_B*.
        """
        is_plain = self.gate is None and self.way.receiver is None and self.receiver.rendezvous is None
        if not is_plain or self.queue or self._on_silence or not self.receiver.alive:
            return False
        mailbox = self.receiver.inbox.mailbox
        return mailbox.awaits(message) and mailbox.queued_bytes(message.source) + self.under_way_B < limit_B

    def when_silent(self, then: Callable[[], object]) -> bool:
        """Call *then* once nothing is in flight, and return True.

        If nothing is in flight now and the gate is open, return False without calling *then*.
        """
        if not self.under_way_B and not (self.gate is not None and self.gate.closed_by):
            return False
        self._on_silence.append(then)
        return True

    def _tell_silence(self) -> None:
        waiting, self._on_silence = self._on_silence, []
        for then in waiting:
            then()  # the call may wait for silence again

    # called by faults

    def go_on(self) -> None:
        """Land the messages that the gate has held, one latency from now."""
        assert self.gate is not None, NO_GATE
        later_s = self.clock.now_s + self.way.latency_at(self.clock.now_s)
        held, self.gate.held = self.gate.held, []
        for message in held:
            self.clock.alarm_at(later_s, self._land, message)
        if self._on_silence and not self.under_way_B:
            self.clock.alarm_at(later_s, lambda _: self._tell_silence())

    def break_for(self, fault: Fault | None) -> None:
        """Drop everything in flight: both ends have lost each other because of *fault*."""
        gate = self.gate
        assert gate is not None, NO_GATE
        gate.broken = gate.broken or fault
        held, gate.held = gate.held, []
        for message in [*held, *(message for number, message in gate.in_flight.items() if number in gate.landed)]:
            self._land(message)
