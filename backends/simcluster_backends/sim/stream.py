"""The stages of a message between `send` and `recv`, in order.

Rounds that all ranks enter, and flows without an algorithm, are computed by the same rules elsewhere, without a stream:
lookahead/course.py and plain_flows.py.

prepare   the sender's overhead, one message of the node after another (network/routes.py)
queue     its turn in the stream; held back by a full inbox, or until the receiver asks for it (rendezvous.py)
inject    its bytes, at the rate that the network grants, with stalls for lost packets (network/flows.py, losses.py)
travel    latency and jitter, never ahead of the message before it (transit.py, network/routes.py)
land      the receiver's overhead, then the inbox (transit.py, network/routes.py)

A gate that a fault closes (transit.py) holds a message before it leaves and before it lands, and drops it once broken.
A stage that the topology does not mention is None and costs nothing. A message's header counts as bytes but takes no
time (docs/design/interface.md says why).
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
"""The queue of a stream on which no message has waited: it stays empty, and takes less memory than one for each."""


@dataclass(slots=True, eq=False)
class Stream:
    """The ordered bytes from one node to another: one message is injected at a time.

    At *limit_B* bytes in flight or unread, the next message waits. *on_drop* is called with the fault and size of each
    message that does not arrive. A message that has left is part of *transit*.
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
    _offered: SimSend | None = None  # announced, but not asked for yet
    _current: SimSend | None = None  # being injected
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
        if outgoing in self._preparing:  # else it was withdrawn or an end is gone
            self._preparing.remove(outgoing)
            self._enqueue(outgoing)
            if outgoing.on_prepared is not None:
                outgoing.on_prepared()

    def _enqueue(self, outgoing: SimSend) -> None:
        """Inject *outgoing* if nothing is before it and nothing holds it back, else let it wait."""
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
        self._is_pumping = True  # a message without a body leaves at once, and then asks for the next
        while self._current is None and self._queue:
            if self.receiver.rendezvous is not None:
                if not self._is_taken(self._queue[0]):
                    break
            elif not self._has_room():
                break
            self._inject(self._queue.popleft())
        self._is_pumping = False

    def _is_taken(self, outgoing: SimSend) -> bool:
        """Announce *outgoing* if necessary; return whether the receiver accepts it without asking."""
        is_closed = self.receiver.inbox.is_closed  # arriving messages are dropped there
        if not is_closed and outgoing is not self._offered:
            self._offered = outgoing
            self.clock.alarm_at(self.clock._now + self.way.latency_s, self._announced, outgoing)
        return is_closed

    def _announced(self, outgoing: SimSend) -> None:
        if self._offered is not outgoing or self.receiver.rendezvous is None:
            return
        if self.gate is not None and self.gate.closed_by:
            self._offered = None  # it is announced again
        else:
            self.receiver.rendezvous.offer(outgoing, self._asked_for)

    def _asked_for(self, outgoing: SimSend) -> None:
        self.clock.alarm_at(self.clock._now + self.way.latency_s, self._admit, outgoing)

    def _admit(self, outgoing: SimSend) -> None:
        if self.gate is not None and self.gate.closed_by:
            self.gate.admitted = outgoing
        elif self._queue and self._queue[0] is outgoing and self._current is None:
            self._inject(self._queue.popleft())

    def _inject(self, outgoing: SimSend) -> None:
        self._current = outgoing
        way = self.way
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
        outgoing.left_s = self.clock._now
        message = outgoing.message
        self.sender.recorder.sent(self.receiver.rank, message.size_bytes)
        if not outgoing.injected.done():
            outgoing.injected.set_result(None)
        self.transit.travel(message)
        if self._queue:
            self.pump()

    def _landed(self, message: Message) -> None:
        if self._queue:
            self.pump()
        if self.receiver.rendezvous is not None:
            self._forget(message)

    # called by its ends

    def waiting(self) -> list[SimSend]:
        """Return the messages that have not left yet."""
        return [*([self._current] if self._current else []), *self._queue, *self._preparing]

    @property
    def is_silent(self) -> bool:
        """Whether no message waits, leaves or is under way."""
        return not (self._current or self._queue or self._preparing or self.transit.under_way_B)

    @property
    def is_plain(self) -> bool:
        """Whether bandwidth and latency alone decide when its messages arrive."""
        return self.gate is None and self.receiver.rendezvous is None and self.way.is_plain

    def prepares(self, outgoing: SimSend) -> bool:
        """Return whether the sender's overhead of *outgoing* has not passed yet."""
        return outgoing in self._preparing

    def withdraw(self, outgoing: SimSend) -> None:
        """Withdraw *outgoing*, a cancelled send: unless it has left completely, none of it arrives."""
        if outgoing in self._preparing:
            self._preparing.remove(outgoing)  # its overhead is not refunded
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
                outgoing.injected.cancel()  # the next send or recv raises
            elif not outgoing.injected.done():
                outgoing.injected.set_exception(error())

    # called by faults

    def stop(self) -> None:
        """Let nothing through; every call needs a matching `go_on`."""
        assert self.gate is not None, NO_GATE
        self.gate.closed_by += 1
        if self.gate.closed_by == 1 and self._current is not None and self._current.flow is not None:
            self.network.pause(self._current.flow)

    def go_on(self) -> None:
        assert self.gate is not None, NO_GATE
        gate = self.gate
        gate.closed_by -= 1
        if gate.closed_by:
            return
        if self._current is not None and self._current.flow is not None:
            self.network.resume(self._current.flow, self.way.route)
        self.transit.go_on()
        if gate.admitted is not None:
            admitted, gate.admitted = gate.admitted, None
            self._admit(admitted)
        self.pump()

    def reroute(self, way: Way) -> None:
        """Use *way* from now on, for the rest of a message that is being injected as well."""
        self.way = self.transit.way = way
        flow = self._current.flow if self._current is not None else None
        if flow is None:
            return
        if flow.paused:
            flow.lay(way.route)
        else:
            self.network.pause(flow)
            self.network.resume(flow, way.route)

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
