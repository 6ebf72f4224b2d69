"""The stages of a message between `send` and `recv`, in order.

Two other modules follow the same rules without a stream: lookahead/schedule_times.py computes
rounds that all ranks enter, and plain_flows.py simulates flows without an algorithm.

prepare   the sender's overhead, one message of the node after another (network/cores.py)
queue     wait for earlier messages, and for the receiver: for room in its inbox, or for its answer
          to an announcement (rendezvous.py)
inject    the bytes leave, at the rate that the network grants, with stalls for lost packets
          (network/flows.py, losses.py)
travel    latency and jitter, never ahead of the message before it (transit.py, network/routes.py)
land      the receiver's overhead, then the inbox (transit.py, network/cores.py)

A fault may close a gate (transit.py), which holds messages before they leave and before they land,
and drops them once it is broken. A stage that the topology does not mention is None and costs
nothing. A message's header counts as bytes but takes no time; docs/design/interface.md has the
reason.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from simcluster.payload import Message
from simcluster_backends.common.inbox import fail
from simcluster_backends.sim.network.flows import Flow
from simcluster_backends.sim.network.losses import StallingFlow
from simcluster_backends.sim.outgoing import SimSend
from simcluster_backends.sim.transit import NO_GATE, Gate, StreamEnd, Transit

if TYPE_CHECKING:
    from simcluster.fault_plans.kinds import Fault
    from simcluster_backends.sim.loop.clock import Clock
    from simcluster_backends.sim.network.flows import Network
    from simcluster_backends.sim.network.routes import Way


NOTHING: Final[deque[SimSend]] = deque()
"""The empty queue of all streams on which no message has waited yet; sharing it saves memory."""


@dataclass(slots=True, eq=False)
class Stream:
    """The ordered messages from one node to another; they are injected one at a time.

    While *limit_B* bytes or more are in flight or unread, the next message waits. *on_drop* is
    called with the fault and the size of each message that does not arrive. *transit* has the
    messages that have left.
    """

    clock: Clock
    network: Network
    sender: StreamEnd
    receiver: StreamEnd
    way: Way
    limit_B: int
    on_drop: Callable[[Fault | None, int], None]
    gate: Gate | None
    transit: Transit = field(init=False)
    _preparing: list[SimSend] = field(default_factory=list)
    _queue: deque[SimSend] = field(init=False)
    _offered: SimSend | None = None  # the message that is announced and not admitted yet
    _current: SimSend | None = None  # the message that is being injected
    _is_pumping: bool = False

    def __post_init__(self) -> None:
        self._queue = NOTHING
        self.transit = Transit(self.clock, self.receiver, self.way, self.gate, self._queue, self.on_drop, self._landed)

    # the stages, in order

    def put(self, outgoing: SimSend) -> None:
        """Take *outgoing* through all stages."""
        overhead = self.way.sender
        if overhead is None:
            self._enqueue(outgoing)
        else:
            self._preparing.append(outgoing)
            overhead.handle(overhead.send_s, self._prepared, outgoing)

    def _prepared(self, outgoing: SimSend) -> None:
        if outgoing in self._preparing:  # otherwise it was withdrawn, or an end is gone
            self._preparing.remove(outgoing)
            self._enqueue(outgoing)
            if outgoing.on_prepared is not None:
                outgoing.on_prepared()

    def _enqueue(self, outgoing: SimSend) -> None:
        """Inject *outgoing* if it is the first and the receiver accepts it; else queue it."""
        unhindered = self.gate is None and self.receiver.rendezvous is None
        if unhindered and not self._queue and self._current is None and not self._is_pumping and self._has_room():
            self._inject(outgoing)
            return
        if self._queue is NOTHING:
            self._queue = self.transit.queue = deque()
        self._queue.append(outgoing)
        self.pump()

    def _has_room(self) -> bool:
        """Return whether the receiver accepts another message."""
        return self.receiver.inbox.mailbox.queued_bytes(self.sender.rank) + self.transit.under_way_B < self.limit_B

    def pump(self) -> None:
        """Inject the next message if none is being injected, the gate is open and the receiver accepts it."""
        if self._is_pumping or (self.gate is not None and (self.gate.closed_by or self.sender.hung)):
            return
        self._is_pumping = True  # _injected calls this method for a message without a body
        while self._current is None and self._queue:
            if self.receiver.rendezvous is not None:
                if not self._is_taken(self._queue[0]):
                    break
            elif not self._has_room():
                break
            self._inject(self._queue.popleft())
        self._is_pumping = False

    def _is_taken(self, outgoing: SimSend) -> bool:
        """Return whether *outgoing* may leave unannounced; if not, ensure that it is announced."""
        is_closed = self.receiver.inbox.is_closed  # a closed inbox drops every message, so send it
        if not is_closed and outgoing is not self._offered:
            self._offered = outgoing
            self.clock.alarm_at(self._one_way_s(), self._announced, outgoing)
        return is_closed

    def _announced(self, outgoing: SimSend) -> None:
        if self._offered is not outgoing or self.receiver.rendezvous is None:
            return
        if self.gate is not None and self.gate.closed_by:
            self._offered = None  # so that it is announced again when the gate opens
        else:
            self.receiver.rendezvous.offer(outgoing, self._asked_for)

    def _asked_for(self, outgoing: SimSend) -> None:
        self.clock.alarm_at(self._one_way_s(), self._admit, outgoing)

    def _one_way_s(self) -> float:
        """Return the time at which a notice that leaves now arrives, in either direction."""
        return self.clock.now_s + self.way.latency_at(self.clock.now_s)

    def _admit(self, outgoing: SimSend) -> None:
        if self.gate is not None and self.gate.closed_by:
            self.gate.admitted = outgoing
        elif self._queue and self._queue[0] is outgoing and self._current is None:
            self._inject(self._queue.popleft())

    def _inject(self, outgoing: SimSend) -> None:
        self._current = outgoing
        way = self.way if not self.way.by_size else self.way.of(outgoing.body_B)[1]
        stalls = way.losses.stalls(outgoing.body_B) if way.losses is not None else None
        if not outgoing.body_B and not stalls:
            self._injected()
            return
        if way.conditions is not None:
            way.conditions.enter()
        if stalls:
            flow: Flow = StallingFlow(
                *way.route, left_B=outgoing.body_B, on_done=self._injected, network=self.network, stalls=stalls
            )
        else:
            flow = Flow(*way.route, left_B=outgoing.body_B, on_done=self._injected)
        outgoing.flow = flow
        self.network.put(flow)

    def _injected(self) -> None:
        outgoing = self._current
        assert outgoing is not None
        if outgoing.flow is not None and self.way.conditions is not None:
            self.way.conditions.leave()
        self._current = None
        outgoing.left_s = self.clock.now_s
        message = outgoing.message
        self.sender.recorder.sent(self.receiver.rank, message.size_bytes)
        way = self.way
        if way.by_size:
            number, way = way.of(outgoing.body_B)
            self.sender.recorder.sent_over(self.receiver.rank, number, message.size_bytes)
        if not outgoing.injected.done():
            outgoing.injected.set_result(None)
        self.transit.travel(message, way)
        if self._queue:
            self.pump()

    def _landed(self, message: Message) -> None:
        if self._queue:
            self.pump()
        if self.receiver.rendezvous is not None:
            self._forget(message)

    # called by the ends of the stream

    def waiting(self) -> list[SimSend]:
        """Return the sends of messages that have not left yet."""
        return [*([self._current] if self._current else []), *self._queue, *self._preparing]

    @property
    def is_silent(self) -> bool:
        """Whether no message waits, leaves or is in flight."""
        return not (self._current or self._queue or self._preparing or self.transit.under_way_B)

    @property
    def is_plain(self) -> bool:
        """Whether the arrival of a message depends only on bandwidth and latency."""
        return self.gate is None and self.receiver.rendezvous is None and self.way.is_plain

    def prepares(self, outgoing: SimSend) -> bool:
        """Return whether the sender still spends its overhead on *outgoing*."""
        return outgoing in self._preparing

    def withdraw(self, outgoing: SimSend) -> None:
        """Withdraw *outgoing*, a cancelled send: unless all of it has left, none of it arrives."""
        if outgoing in self._preparing:
            self._preparing.remove(outgoing)  # the sender still spends its overhead
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
        """Break the stream because one end is gone: nothing more leaves, and waiting senders get *error*."""
        waiting = self.waiting()
        self._abandon_current()
        self._queue.clear()
        self._preparing.clear()
        for outgoing in waiting:
            self._forget(outgoing.message)
            if outgoing.partner is not None:
                fail(outgoing.partner, error())
            if outgoing.is_held:
                outgoing.injected.cancel()  # no sender waits: the next send or recv raises the loss
            elif not outgoing.injected.done():
                outgoing.injected.set_exception(error())

    # called by faults

    def stop(self) -> None:
        """Close the gate: no message leaves or lands. Each call needs a matching `go_on`."""
        assert self.gate is not None, NO_GATE
        self.gate.closed_by += 1
        if self.gate.closed_by == 1 and self._current is not None and self._current.flow is not None:
            self.network.pause(self._current.flow)

    def go_on(self) -> None:
        """Undo one `stop`. Once all are undone, messages leave and land again."""
        assert self.gate is not None, NO_GATE
        gate = self.gate
        gate.closed_by -= 1
        if gate.closed_by:
            return
        if self._current is not None and self._current.flow is not None:
            self.network.resume(self._current.flow, self.way.of(self._current.body_B)[1].route)
        self.transit.go_on()
        if gate.admitted is not None:
            admitted, gate.admitted = gate.admitted, None
            self._admit(admitted)
        self.pump()

    def reroute(self, way: Way) -> None:
        """Use *way* from now on, also for the rest of a message that is being injected."""
        self.way = self.transit.way = way
        if self._current is None or self._current.flow is None:
            return
        flow, route = self._current.flow, way.of(self._current.body_B)[1].route
        if flow.paused:
            flow.lay(route)
        else:
            self.network.pause(flow)
            self.network.resume(flow, route)

    def _abandon_current(self) -> None:
        if self._current is not None and self._current.flow is not None:
            if self.way.conditions is not None:
                self.way.conditions.leave()
            self.network.cancel(self._current.flow)
        self._current = None

    def _forget(self, message: Message) -> None:
        if self._offered is not None and self._offered.message is message:
            self._offered = None
        if self.receiver.rendezvous is not None:
            self.receiver.rendezvous.forget(message)
