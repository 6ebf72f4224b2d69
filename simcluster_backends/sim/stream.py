"""The stages of a message between `send` and `recv`, in order. Its time is decided here and nowhere else.

prepare   the sender's overhead, one message of the node after another (network/overheads.py)
queue     its turn in the stream; a full inbox holds it back, or a receiver that has not asked for it (rendezvous.py)
inject    its bytes, at the rate that the network grants, with stalls for lost packets (network/flows.py, stalls.py)
travel    latency and jitter, never ahead of the message before it (network/jitter.py)
land      the receiver's overhead, then the inbox (network/overheads.py)

A gate that a fault closes (gate.py) holds a message before it leaves and before it lands, and drops it once it is
broken. What a topology does not mention is not there: its stage is None, and costs nothing. A message's header counts
as bytes but takes no time (docs/design/interface.md says why).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from simcluster.payload import Message
from simcluster_backends.common.inbox import fail
from simcluster_backends.sim.network.stalls import StallingFlow
from simcluster_backends.sim.outgoing import Outgoing

if TYPE_CHECKING:
    from simcluster.fault_plans.kinds import Fault
    from simcluster.runs.record import Recorder
    from simcluster_backends.common.inbox import Inbox
    from simcluster_backends.sim.gate import Gate
    from simcluster_backends.sim.loop.clock import Clock
    from simcluster_backends.sim.network.flows import Network
    from simcluster_backends.sim.network.routes import Way
    from simcluster_backends.sim.rendezvous import Rendezvous


class Endpoint(Protocol):
    """A node as a stream sees it.

    *rendezvous* is None for a node that takes in what it has not asked for. *hung* counts the faults that have stopped
    it, and *killed_by* is the one that ended it.
    """

    rank: int
    name: str
    inbox: Inbox
    recorder: Recorder
    rendezvous: Rendezvous | None
    alive: bool
    hung: int
    killed_by: Fault | None


class Stream:
    """The ordered bytes from one node to another: one message is injected at a time.

    *limit_B* is how many bytes may be in flight or unread before the next message waits. *on_drop* is called with the
    fault and the size of each message that does not arrive. Bytes that have left are under way, have arrived or were
    dropped.
    """

    __slots__ = (
        *("_clock", "_current", "_is_pumping", "_last_arrival_s", "_limit_B", "_network", "_offered", "_on_drop"),
        *("_on_silence", "_preparing", "_queue", "_rendezvous", "arrived_B", "dropped_B", "gate", "receiver", "sender"),
        *("under_way_B", "way"),
    )

    def __init__(
        self,
        clock: Clock,
        network: Network,
        sender: Endpoint,
        receiver: Endpoint,
        way: Way,
        *,
        limit_B: int,
        on_drop: Callable[[Fault | None, int], None],
        gate: Gate | None = None,
    ) -> None:
        self.sender, self.receiver, self.way, self.gate = sender, receiver, way, gate
        self.under_way_B = self.arrived_B = self.dropped_B = 0
        self._clock, self._network, self._limit_B, self._on_drop = clock, network, limit_B, on_drop
        self._rendezvous = receiver.rendezvous
        self._preparing: deque[Outgoing] = deque()
        self._queue: deque[Outgoing] = deque()
        self._offered: Outgoing | None = None  # announced to the receiver, which has not asked for it yet
        self._current: Outgoing | None = None  # being injected
        self._is_pumping = False
        self._last_arrival_s = 0.0
        self._on_silence: list[Callable[[], object]] = []

    # the stages, in order

    def put(self, outgoing: Outgoing) -> None:
        """Take *outgoing* through all stages."""
        overhead = self.way.sender
        if overhead is None:
            self._queue.append(outgoing)
            self.pump()
        else:
            self._preparing.append(outgoing)
            overhead.handle(overhead.send_s, self._prepared, outgoing)

    def _prepared(self, outgoing: Outgoing) -> None:
        if outgoing in self._preparing:  # else it was withdrawn, or an end is gone
            self._preparing.remove(outgoing)
            self._queue.append(outgoing)
            self.pump()

    def pump(self) -> None:
        """Inject the next message if none is being injected, the gate is open and the receiver takes it."""
        if self._is_pumping or (self.gate is not None and (self.gate.is_closed or self.sender.hung)):
            return
        self._is_pumping = True  # a message without a body leaves at once, and then asks for the next
        while self._current is None and self._queue:
            if self._rendezvous is not None:
                if not self._is_taken(self._queue[0]):
                    break
            elif self.receiver.inbox.mailbox.queued_bytes(self.sender.rank) + self.under_way_B >= self._limit_B:
                break
            self._inject(self._queue.popleft())
        self._is_pumping = False

    def _is_taken(self, outgoing: Outgoing) -> bool:
        """Announce *outgoing* if it has not been; return whether the receiver takes it without asking."""
        is_closed = self.receiver.inbox.is_closed  # what comes is dropped there
        if not is_closed and outgoing is not self._offered:
            self._offered = outgoing
            self._clock.alarm_at(self._clock._now + self.way.latency_s, self._announced, outgoing)
        return is_closed

    def _announced(self, outgoing: Outgoing) -> None:
        if self._offered is not outgoing or self._rendezvous is None:
            return
        if self.gate is not None and self.gate.is_closed:
            self._offered = None  # it is announced again
        else:
            self._rendezvous.offer(outgoing, self._asked_for)

    def _asked_for(self, outgoing: Outgoing) -> None:
        self._clock.alarm_at(self._clock._now + self.way.latency_s, self._admit, outgoing)

    def _admit(self, outgoing: Outgoing) -> None:
        if self.gate is not None and self.gate.is_closed:
            self.gate.admitted = outgoing
        elif self._queue and self._queue[0] is outgoing and self._current is None:
            self._inject(self._queue.popleft())

    def _inject(self, outgoing: Outgoing) -> None:
        self._current = outgoing
        way, network = self.way, self._network
        stalls = way.losses.stalls(outgoing.body_B) if way.losses is not None else None
        if not outgoing.body_B and not stalls:
            self._injected()
            return
        if way.conditions is not None:
            way.conditions.enter()
        if stalls:
            flow = StallingFlow(network, self._clock, way.route, outgoing.body_B, stalls, self._injected)
            outgoing.flow = flow
            network.put(flow)
        else:
            outgoing.flow = network.start(way.route, outgoing.body_B, self._injected)

    def _injected(self) -> None:
        outgoing = self._current
        assert outgoing is not None
        if outgoing.flow is not None and self.way.conditions is not None:
            self.way.conditions.leave()
        self._current = None
        outgoing.left_s = self._clock._now
        message = outgoing.message
        self.sender.recorder.sent(self.receiver.rank, message.size_bytes)
        if not outgoing.injected.done():
            outgoing.injected.set_result(None)
        self._travel(message)
        if self._queue:
            self.pump()

    def _travel(self, message: Message) -> None:
        self.under_way_B += message.size_bytes
        if self.gate is not None:
            self.gate.leaves(message)
        now_s = self._clock._now
        delay_s = self.way.latency_s
        for draw_s in self.way.jitters:
            delay_s += draw_s()
        arrival_s = now_s + delay_s
        if arrival_s < self._last_arrival_s:
            arrival_s = self._last_arrival_s  # one ordered stream: nothing overtakes
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
        if not self.receiver.alive:
            self._drop(message, self.receiver.killed_by)
        else:
            self.under_way_B -= message.size_bytes
            self.arrived_B += message.size_bytes
            self.receiver.inbox.put(message)
            if self._queue:
                self.pump()
            if self._rendezvous is not None:
                self._forget(message)
        if self._on_silence and not self.under_way_B:
            self._tell_silence()

    def _drop(self, message: Message, fault: Fault | None) -> None:
        self.under_way_B -= message.size_bytes
        self.dropped_B += message.size_bytes
        self._on_drop(fault, message.size_bytes)
        if self._queue:
            self.pump()
        self._forget(message)

    # what its ends do

    def waiting(self) -> list[Outgoing]:
        """Return the messages that have not left yet."""
        return [*([self._current] if self._current else []), *self._queue, *self._preparing]

    @property
    def is_silent(self) -> bool:
        """Whether no message waits, leaves or is under way."""
        return not (self._current or self._queue or self._preparing or self.under_way_B)

    @property
    def is_plain(self) -> bool:
        """Whether bandwidth and latency alone decide when its messages arrive."""
        return self.gate is None and self._rendezvous is None and self.way.is_plain

    def when_silent(self, then: Callable[[], object]) -> bool:
        """Call *then* once nothing is under way any more; return False if that is so already."""
        if not self.under_way_B and not (self.gate is not None and self.gate.is_closed):
            return False
        self._on_silence.append(then)
        return True

    def withdraw(self, outgoing: Outgoing) -> None:
        """Withdraw *outgoing*, a cancelled send: unless all of it has left, nothing of it arrives."""
        if outgoing in self._preparing:
            self._preparing.remove(outgoing)  # the overhead that it took of the node, it took
            return
        if self.gate is not None and self.gate.admitted is outgoing:
            self.gate.admitted = None
        if outgoing is self._current:
            self._abandon_current()
        elif outgoing in self._queue:
            self._queue.remove(outgoing)
        self._forget(outgoing.message)
        self.pump()

    def break_off(self, error: Callable[[], BaseException]) -> None:
        """End it, since one end is gone: nothing more leaves, and senders that wait are given *error*."""
        waiting = self.waiting()
        self._abandon_current()
        self._queue.clear()
        self._preparing.clear()
        for outgoing in waiting:
            self._forget(outgoing.message)
            if outgoing.partner is not None:
                fail(outgoing.partner, error())
            if outgoing.is_held:
                outgoing.injected.cancel()  # the next send or recv is told
            elif not outgoing.injected.done():
                outgoing.injected.set_exception(error())

    # what faults do

    def stop(self) -> None:
        """Let nothing through until `go_on` has been called as often."""
        flow = self._current.flow if self._current is not None else None
        if self._gate.close() and flow is not None:
            self._network.pause(flow)

    def go_on(self) -> None:
        gate = self._gate
        if not gate.open():
            return
        if self._current is not None and self._current.flow is not None:
            self._network.resume(self._current.flow, self.way.route)
        later_s = self._clock._now + self.way.latency_s
        held, gate.held = gate.held, []
        for message in held:
            self._clock.alarm_at(later_s, self._land, message)
        if self._on_silence and not self.under_way_B:
            self._clock.alarm_at(later_s, lambda _: self._tell_silence())
        if gate.admitted is not None:
            admitted, gate.admitted = gate.admitted, None
            self._admit(admitted)
        self.pump()

    def reroute(self, way: Way) -> None:
        """Use *way* from now on, for the rest of a message that is being injected as well."""
        self.way = way
        flow = self._current.flow if self._current is not None else None
        if flow is None:
            return
        if flow.paused:
            flow.lay(way.route)
        else:
            self._network.pause(flow)
            self._network.resume(flow, way.route)

    def break_for(self, fault: Fault | None) -> None:
        """Drop everything in flight, since both ends have given each other up because of *fault*."""
        for message in self._gate.break_for(fault):
            self._land(message)

    # inside

    @property
    def _gate(self) -> Gate:
        assert self.gate is not None, "where a plan has such a fault, all streams have gates"
        return self.gate

    def _abandon_current(self) -> None:
        if self._current is not None and self._current.flow is not None:
            if self.way.conditions is not None:
                self.way.conditions.leave()
            self._network.cancel(self._current.flow)
        self._current = None

    def _forget(self, message: Message) -> None:
        if self._offered is not None and self._offered.message is message:
            self._offered = None
        if self._rendezvous is not None:
            self._rendezvous.forget(message)

    def _tell_silence(self) -> None:
        waiting, self._on_silence = self._on_silence, []
        for then in waiting:
            then()  # it may ask again
