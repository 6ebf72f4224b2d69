"""The messages of a stream between their last byte's departure and the receiver's inbox: travel, land, drop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from simcluster.fault_plans.kinds import Fault
    from simcluster.payload import Message
    from simcluster_backends.common.inbox import Inbox
    from simcluster_backends.sim.gate import Gate
    from simcluster_backends.sim.loop.clock import Clock
    from simcluster_backends.sim.network.routes import Way
    from simcluster_backends.sim.outgoing import Outgoing
    from simcluster_backends.sim.rendezvous import Rendezvous


class Receiver(Protocol):
    """The node at which messages land. *killed_by* is the fault that ended it.

    *rendezvous* is None if the node accepts messages without asking.
    """

    inbox: Inbox
    alive: bool
    rendezvous: Rendezvous | None
    killed_by: Fault | None


class Transit:
    """The messages of one stream that have left: each is in flight, has arrived or was dropped.

    *on_drop* is called with the fault and size of each message that does not arrive, *on_end* with one that
    has arrived or was dropped, if the receiver asks for messages or another waits in *queue* to leave.
    """

    __slots__ = (
        *("_clock", "_last_arrival_s", "_on_drop", "_on_end", "_on_silence", "_queue", "_receiver", "arrived_B"),
        *("dropped_B", "_is_asked_for", "gate", "under_way_B", "way"),
    )

    def __init__(
        self,
        clock: Clock,
        receiver: Receiver,
        way: Way,
        gate: Gate | None,
        queue: deque[Outgoing],
        on_drop: Callable[[Fault | None, int], None],
        on_end: Callable[[Message], None],
    ) -> None:
        self.way, self.gate = way, gate
        self.under_way_B = self.arrived_B = self.dropped_B = 0
        self._clock, self._receiver, self._on_drop, self._on_end = clock, receiver, on_drop, on_end
        self._queue, self._is_asked_for = queue, receiver.rendezvous is not None
        self._last_arrival_s = 0.0
        self._on_silence: list[Callable[[], object]] = []

    def travel(self, message: Message) -> None:
        """Land *message* after latency and jitter, never ahead of the message before it."""
        self.under_way_B += message.size_bytes
        if self.gate is not None:
            self.gate.leaves(message)
        now_s = self._clock._now
        delay_s = self.way.latency_s
        for draw_s in self.way.jitters:
            delay_s += draw_s()
        arrival_s = now_s + delay_s
        if arrival_s < self._last_arrival_s:
            arrival_s = self._last_arrival_s  # one ordered stream: no overtaking
        self._last_arrival_s = arrival_s
        land = self._arrive if self.gate is None and self.way.receiver is None else self._land
        if arrival_s > now_s:
            self._clock.alarm_at(arrival_s, land, message)
        else:
            land(message)

    def _land(self, message: Message) -> None:
        gate = self.gate
        if gate is None:
            self._take_in(message)
        elif gate.broken is not None:
            gate.forget(message)
            self._drop(message, gate.broken)
        elif gate.is_closed:
            gate.held.append(message)
        else:
            for landed in gate.land(message):
                self._take_in(landed)

    def _take_in(self, message: Message) -> None:
        overhead = self.way.receiver
        if overhead is None:
            self._arrive(message)
        else:
            overhead.handle(overhead.recv_s, self._arrive, message)

    def _arrive(self, message: Message) -> None:
        if not self._receiver.alive:
            self._drop(message, self._receiver.killed_by)
        else:
            self.under_way_B -= message.size_bytes
            self.arrived_B += message.size_bytes
            self._receiver.inbox.put(message)
            if self._queue or self._is_asked_for:
                self._on_end(message)
        if self._on_silence and not self.under_way_B:
            self._tell_silence()

    def _drop(self, message: Message, fault: Fault | None) -> None:
        self.under_way_B -= message.size_bytes
        self.dropped_B += message.size_bytes
        self._on_drop(fault, message.size_bytes)
        if self._queue or self._is_asked_for:
            self._on_end(message)

    # called by the ends

    def when_silent(self, then: Callable[[], object]) -> bool:
        """Call *then* once nothing is in flight; return False if that is already so."""
        if not self.under_way_B and not (self.gate is not None and self.gate.is_closed):
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
        assert self.gate is not None
        later_s = self._clock._now + self.way.latency_s
        held, self.gate.held = self.gate.held, []
        for message in held:
            self._clock.alarm_at(later_s, self._land, message)
        if self._on_silence and not self.under_way_B:
            self._clock.alarm_at(later_s, lambda _: self._tell_silence())

    def break_for(self, fault: Fault | None) -> None:
        """Drop everything in flight: both ends have given each other up because of *fault*."""
        assert self.gate is not None, "where a plan has such a fault, all streams have gates"
        for message in self.gate.break_for(fault):
            self._land(message)
