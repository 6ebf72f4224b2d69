"""The ordered bytes from one node to another, in virtual time.

This file knows two nodes, the route between them and the fluid network. It must not know algorithms, devices or files.

A message's body is injected at the rate that the network gives it and arrives one route latency after its last byte
left; its header counts as bytes but takes no time of its own (docs/design-decisions.md says why).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol

from backends.common.inbox import Waiting, fail
from simcluster.payload import Message

if TYPE_CHECKING:
    from backends.sim.cluster import Cluster
    from backends.sim.network.flows import Flow, Route
    from backends.sim.transport import SimTransport

INBOX_BYTES = 64 * 1024 * 1024
"""Unreceived bytes per peer beyond which a node stops reading from it, as the sockets backend does."""


class Beside(Protocol):
    """Who wants to know what a receive waits on."""

    def wait_beside(self, receiver: Waiting) -> None:
        """It waits on *receiver*."""


class Outgoing:
    """A message on its way out: *injected* is done when its last byte has left, at *left_s*.

    *beside* is a receiver that waits together with it, in an exchange, and fails with it. No sender waits for what
    *is_held* by a send buffer.
    """

    __slots__ = ("beside", "body_B", "flow", "injected", "is_held", "left_s", "message")

    def __init__(self, message: Message, body_B: int, injected: asyncio.Future[None]) -> None:
        self.message = message
        self.body_B = body_B
        self.injected = injected
        self.flow: Flow | None = None
        self.beside: Waiting | None = None
        self.left_s = 0.0
        self.is_held = False

    def wait_beside(self, receiver: Waiting) -> None:
        self.beside = receiver


class Stream:
    """The ordered bytes from one node to another: one message is injected at a time.

    *is_plain* is whether bandwidth and latency are all that there is to it. What has left is under way, has arrived, or
    was dropped, since the receiver died or a fault is in the way: see `Cluster.check_conservation`.
    """

    is_plain: ClassVar[bool] = True
    __slots__ = (
        *("_current", "_is_pumping", "_queue", "arrived_B", "clock", "cluster", "dropped_B"),
        *("latency_s", "receiver", "route", "sender", "under_way_B"),
    )

    def __init__(
        self,
        cluster: Cluster,
        sender: SimTransport,
        receiver: SimTransport,
        route: Route,
        latency_s: float,
    ) -> None:
        self.cluster = cluster
        self.clock = cluster.loop.clock
        self.sender, self.receiver = sender, receiver
        self.route, self.latency_s = route, latency_s
        self.under_way_B = self.arrived_B = self.dropped_B = 0
        self._queue: deque[Outgoing] = deque()
        self._current: Outgoing | None = None
        self._is_pumping = False

    def put(self, outgoing: Outgoing) -> None:
        self._queue.append(outgoing)
        self.pump()

    def waiting(self) -> list[Outgoing]:
        """What has not left yet."""
        return ([self._current] if self._current else []) + list(self._queue)

    @property
    def is_silent(self) -> bool:
        """Nothing waits, leaves or is under way."""
        return self._current is None and not self._queue and not self.under_way_B

    def when_silent(self, then: Callable[[], object]) -> bool:
        """Calls *then* when nothing is under way any more; False if, in one latency, nothing is."""
        return False

    def pump(self) -> None:
        """Injects the next message if none is under way and the receiver still reads."""
        if self._is_pumping:  # a message without a body leaves at once, and then asks for the next
            return
        self._is_pumping = True
        while self._current is None and self._queue:
            unread_B = self.receiver.inbox.mailbox.queued_bytes(self.sender.rank)
            if unread_B + self.under_way_B >= self.cluster.inbox_bytes:
                break
            self._current = outgoing = self._queue.popleft()
            self._start(outgoing)
        self._is_pumping = False

    def withdraw(self, outgoing: Outgoing) -> None:
        """A cancelled send: what has not left entirely does not arrive at all."""
        if outgoing is self._current:
            if outgoing.flow is not None:
                self.cluster.network.cancel(outgoing.flow)
            self._current = None
            self.pump()
        elif outgoing in self._queue:
            self._queue.remove(outgoing)

    def break_off(self, error: Callable[[], BaseException]) -> None:
        """One end is gone: nothing more leaves, and whoever waits to send is told."""
        waiting = self.waiting()
        if self._current is not None and self._current.flow is not None:
            self.cluster.network.cancel(self._current.flow)
        self._current = None
        self._queue.clear()
        for outgoing in waiting:
            if outgoing.beside is not None:
                fail(outgoing.beside, error())
            if outgoing.is_held:
                outgoing.injected.cancel()  # nobody is told: the next send or recv is
            elif not outgoing.injected.done():
                outgoing.injected.set_exception(error())

    def _start(self, outgoing: Outgoing) -> None:
        """*outgoing* is the current one: its bytes begin to leave."""
        if outgoing.body_B:
            outgoing.flow = self.cluster.network.start(self.route, outgoing.body_B, self._injected)
        else:
            self._injected()

    def _injected(self) -> None:
        outgoing = self._current
        assert outgoing is not None
        self._current = None
        outgoing.left_s = self.clock._now
        message = outgoing.message
        self.sender.recorder.sent(self.receiver.rank, message.size_bytes)
        if not outgoing.injected.done():
            outgoing.injected.set_result(None)
        self._travel(message)
        if self._queue:
            self.pump()

    def _travel(self, message: Message) -> None:
        """All of *message* has left: it arrives when its latency is over."""
        self.under_way_B += message.size_bytes
        if self.latency_s:
            self.clock.alarm_at(self.clock._now + self.latency_s, self._arrive, message)
        else:
            self._arrive(message)

    def _arrive(self, message: Message) -> None:
        if not self.receiver.alive:
            self.drop(message, self.receiver)
            return
        self.under_way_B -= message.size_bytes
        self.arrived_B += message.size_bytes
        self.receiver.inbox.put(message)
        if self._queue:
            self.pump()

    def drop(self, message: Message, cause: object) -> None:
        """*message* does not arrive, because of *cause*: a fault, or the receiver that is dead."""
        self.under_way_B -= message.size_bytes
        self.dropped_B += message.size_bytes
        self.cluster.note_drop(message, cause)
        if self._queue:
            self.pump()
